"""Keeps a set of child processes alive until it is told to end them."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from api_gateway.cli.process import ProcessSpec, bound_log, describe_exit, signal_group, spawn

FIRST_DELAY_S = 0.2
MAX_DELAY_S = 5.0
#: A child that lived this long has proven that it works: its next restart is quick again.
SETTLED_S = 30.0
POLL_S = 0.1
LOG_CHECK_S = 10.0
#: How much of the time to stop is kept for the ranks that come after, so that the last ends cleanly.
RESERVE_S = 2.0


@dataclass(frozen=True, slots=True)
class Exit:
    """A child that ended by itself, and when the next one starts."""

    name: str
    reason: str
    lived_s: float
    restart_in_s: float


def next_delay(previous_s: float, lived_s: float) -> float:
    """Seconds until a restart: doubling from 0.2 to 5, from the beginning after 30 s of life."""
    if previous_s == 0.0 or lived_s >= SETTLED_S:
        return FIRST_DELAY_S
    return min(previous_s * 2, MAX_DELAY_S)


@dataclass(slots=True)
class _Child:
    spec: ProcessSpec
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    delay_s: float = 0.0
    due: float = 0.0


class Supervisor:
    """Starts, restarts and stops children; not safe for threads, and only for the main one."""

    def __init__(self, folder: Path, logs: Path, on_exit: Callable[[Exit], None]) -> None:
        self._folder = folder
        self._logs = logs
        self._on_exit = on_exit
        self._children: dict[str, _Child] = {}
        self._next_log_check = 0.0

    def start(self, specs: Iterable[ProcessSpec]) -> None:
        """Raises OSError when a program can't be run at all."""
        for spec in specs:
            child = _Child(spec, self._logs / f"{spec.name}.log")
            self._children[spec.name] = child
            self._spawn(child)

    def pids(self) -> dict[str, int]:
        """The living children's process ids, which are their process groups' too."""
        return {name: child.process.pid for name, child in self._children.items() if child.process}

    def log(self, name: str) -> Path:
        return self._children[name].log

    def tick(self) -> bool:
        """One look at every child: note who died, restart who is due. Whether any process id changed."""
        now = time.monotonic()
        changed = [self._look(child, now) for child in self._children.values()]
        if now >= self._next_log_check:
            self._next_log_check = now + LOG_CHECK_S
            for child in self._children.values():
                bound_log(child.log)
        return any(changed)

    def _look(self, child: _Child, now: float) -> bool:
        if child.process is not None:
            return self._note_death(child, now)
        if now >= child.due:
            self._spawn(child)
            return True
        return False

    def _spawn(self, child: _Child) -> None:
        child.started = time.monotonic()
        child.process = spawn(child.spec, child.log, self._folder)

    def _note_death(self, child: _Child, now: float) -> bool:
        process = child.process
        if process is None or process.poll() is None:
            return False
        signal_group(process.pid, signal.SIGKILL)  # whatever it started must not work beside its successor
        lived_s = now - child.started
        child.process = None
        child.delay_s = next_delay(child.delay_s, lived_s)
        child.due = now + child.delay_s
        self._on_exit(Exit(child.spec.name, describe_exit(process.returncode), lived_s, child.delay_s))
        return True

    def stop(self, timeout_s: float) -> list[str]:
        """End all, rank by rank; who is not gone in time is killed. The names of those."""
        deadline = time.monotonic() + timeout_s
        ranks = sorted({child.spec.stop_rank for child in self._children.values()})
        killed: list[str] = []
        for index, rank in enumerate(ranks):
            reserved_s = RESERVE_S * (len(ranks) - 1 - index)
            members = [child for child in self._children.values() if child.spec.stop_rank == rank]
            killed += _end(members, deadline - min(reserved_s, timeout_s / 2))
        self._children.clear()
        return killed

    def kill(self) -> None:
        """End all at once without asking."""
        _end(list(self._children.values()), deadline=0.0)
        self._children.clear()


def _end(children: list[_Child], deadline: float) -> list[str]:
    running = [(child, child.process) for child in children if child.process is not None]
    if deadline > time.monotonic():
        for child, process in running:
            if process.poll() is None:
                process.send_signal(child.spec.stop_signal)
    while time.monotonic() < deadline and any(process.poll() is None for _, process in running):
        time.sleep(0.02)
    late = [child.spec.name for child, process in running if process.poll() is None]
    for child, process in running:
        signal_group(process.pid, signal.SIGKILL)
        process.wait()
        child.process = None
    return late
