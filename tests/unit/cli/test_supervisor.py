"""The supervisor with real child processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_gateway.cli.process import ProcessSpec, bound_log, describe_exit, is_same, start_time, tail
from api_gateway.cli.supervisor import FIRST_DELAY_S, MAX_DELAY_S, SETTLED_S, Exit, Supervisor, next_delay

ROOT = Path(__file__).parents[3]
SLEEPER = (sys.executable, "-c", "import time; time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
)
WITH_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
print('child', child.pid, flush=True)
time.sleep(60)
"""
PARENT = (sys.executable, "-c", WITH_CHILD)
STOPPER = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(time.time(), flush=True)))
print('up', flush=True)
time.sleep(60)
"""


class Stage:
    """A supervisor on a temporary folder, and what it reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exits: list[Exit] = []
        self.supervisor = Supervisor(folder, folder, self.exits.append)

    def start(self, name: str, command: tuple[str, ...], **options) -> int:
        self.supervisor.start([ProcessSpec(name, command, dict(os.environ), **options)])
        return self.supervisor.pids()[name]

    def tick_until(self, condition, timeout_s: float = 10.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, tail(next(self.folder.glob("*.log")))
            self.supervisor.tick()
            time.sleep(0.02)

    def logged(self, name: str, text: str):
        return lambda: text in tail(self.folder / f"{name}.log")


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    yield made
    made.supervisor.kill()


def gone(pid: int) -> bool:
    return start_time(pid) is None


def test_a_killed_child_is_started_again_and_the_signal_is_reported(stage):
    first = stage.start("sleeper", SLEEPER)
    os.kill(first, signal.SIGKILL)
    stage.tick_until(lambda: stage.supervisor.pids().get("sleeper") not in (None, first))
    assert [(each.name, each.reason) for each in stage.exits] == [("sleeper", "SIGKILL")]


def test_a_child_that_keeps_failing_is_restarted_more_and_more_slowly(stage):
    stage.start("broken", (sys.executable, "-c", "raise SystemExit(3)"))
    stage.tick_until(lambda: len(stage.exits) >= 3)
    assert {each.reason for each in stage.exits} == {"exit code 3"}
    assert [each.restart_in_s for each in stage.exits[:3]] == [0.2, 0.4, 0.8]


def test_what_a_dead_child_had_started_does_not_outlive_it(stage):
    parent = stage.start("parent", PARENT)
    stage.tick_until(stage.logged("parent", "child"))
    grandchild = int(tail(stage.folder / "parent.log").split()[1])
    os.kill(parent, signal.SIGKILL)
    stage.tick_until(lambda: gone(grandchild))
    assert is_same(grandchild, 0.0) is False


def test_stopping_goes_rank_by_rank(stage):
    report = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print(time.time(), flush=True)))\n"
    )
    stopper = (sys.executable, "-c", report + "print('up', flush=True); time.sleep(60)")
    for name, rank in (("last", 2), ("first", 0), ("middle", 1)):
        stage.start(name, stopper, stop_rank=rank)
        stage.tick_until(stage.logged(name, "up"))
    assert stage.supervisor.stop(10.0) == []
    ends = {name: float(tail(stage.folder / f"{name}.log").split()[-1]) for name in ("first", "middle", "last")}
    assert ends["first"] < ends["middle"] < ends["last"]


def test_who_does_not_stop_in_time_is_killed_and_named(stage):
    pid = stage.start("stubborn", STUBBORN)
    stage.tick_until(stage.logged("stubborn", "deaf"))
    begun = time.monotonic()
    assert stage.supervisor.stop(1.0) == ["stubborn"]
    assert time.monotonic() - begun < 3.0
    assert gone(pid)


def test_a_program_that_is_not_there_is_an_error_at_the_start(stage):
    with pytest.raises(OSError, match="no-such-program"):
        stage.start("missing", ("/no-such-program",))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no parent-death signal; `up` cleans there")
def test_children_die_with_a_supervisor_that_is_killed(tmp_path):
    code = (
        "import sys, os, time; from pathlib import Path\n"
        "from api_gateway.cli.supervisor import Supervisor; from api_gateway.cli.process import ProcessSpec\n"
        f"folder = Path({str(tmp_path)!r}); s = Supervisor(folder, folder, print)\n"
        "s.start([ProcessSpec('sleeper', (sys.executable, '-c', 'import time; time.sleep(60)'), dict(os.environ))])\n"
        "print(s.pids()['sleeper'], flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as supervisor:
        pid = int(supervisor.stdout.readline())
        assert psutil.pid_exists(pid)
        supervisor.kill()
    deadline = time.monotonic() + 5
    while not gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_nice_child_is_nice(stage):
    pid = stage.start("nice", SLEEPER, nice=7)
    stage.tick_until(lambda: psutil.Process(pid).nice() == os.nice(0) + 7)


def test_a_log_that_is_too_long_is_put_aside_and_its_writer_goes_on(tmp_path):
    log = tmp_path / "a.log"
    with log.open("ab") as writer:
        writer.write(b"x" * 100)
        writer.flush()
        bound_log(log, limit_bytes=99)
        writer.write(b"after")
    assert (tmp_path / "a.log.1").read_bytes() == b"x" * 100
    assert log.read_bytes() == b"after"


def test_exits_are_described_by_code_or_signal_name():
    assert describe_exit(1) == "exit code 1"
    assert describe_exit(-signal.SIGSEGV) == "SIGSEGV"
    assert describe_exit(-250) == "signal 250"


@given(st.lists(st.floats(min_value=0, max_value=100), max_size=30))
def test_delays_double_up_to_the_limit_and_start_over_after_a_settled_life(lives):
    delay = 0.0
    for lived_s in lives:
        following = next_delay(delay, lived_s)
        assert FIRST_DELAY_S <= following <= MAX_DELAY_S
        expected = FIRST_DELAY_S if lived_s >= SETTLED_S or delay == 0 else min(2 * delay, MAX_DELAY_S)
        assert following == expected
        delay = following
