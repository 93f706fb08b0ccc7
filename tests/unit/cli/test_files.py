"""Private files, the lock, the record of what runs, ports."""

import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

from api_gateway.cli.credentials import credentials_path, load_credentials, new_credentials, save_credentials
from api_gateway.cli.files import exclusive, is_owned, make_folders, write_private
from api_gateway.cli.ports import PortWish, choose_ports
from api_gateway.cli.process import start_time
from api_gateway.cli.record import ProcessId, StackRecord, end_orphans, identify, read_record, record_path, write_record
from pipeline.errors import ConfigurationError, ConflictError


@pytest.fixture
def data_dir(tmp_path):
    make_folders(tmp_path / "data")
    return tmp_path / "data"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_secrets_are_for_their_owner_only(data_dir):
    save_credentials(data_dir, new_credentials())
    assert {mode(data_dir), *(mode(data_dir / name) for name in ("run", "logs", "valkey"))} == {0o700}
    assert mode(credentials_path(data_dir)) == 0o600


def test_secrets_are_read_back_and_never_the_same_twice(data_dir):
    first = new_credentials().with_api_key("sm_x")
    save_credentials(data_dir, first)
    assert load_credentials(data_dir) == first
    assert new_credentials().redis_password != first.redis_password


def test_damaged_secrets_are_an_error_that_names_the_file(data_dir):
    credentials_path(data_dir).write_text("{")
    with pytest.raises(ConfigurationError, match=r"credentials\.json"):
        load_credentials(data_dir)


def test_a_folder_that_can_not_be_made_is_an_error_that_names_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="SOURCEMILL_DATA_DIR"):
        make_folders(tmp_path / "file" / "data")


def test_a_data_folder_has_one_owner_at_a_time(data_dir):
    with exclusive(data_dir):
        assert is_owned(data_dir)
        with pytest.raises(ConflictError, match=str(os.getpid())), exclusive(data_dir):
            pass
    assert not is_owned(data_dir)


def test_a_lock_file_that_a_dead_process_left_is_no_obstacle(data_dir):
    (data_dir / "run" / "lock").write_text("1")
    with exclusive(data_dir):
        assert (data_dir / "run" / "lock").read_text() == str(os.getpid())


def test_a_private_file_is_replaced_whole(data_dir):
    path = data_dir / "run" / "x"
    write_private(path, b"old")
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert [each.name for each in path.parent.iterdir()] == ["x"]


def group(code):
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE, text=True)


def record_of(process, started=None):
    found = ProcessId(process.pid, started or start_time(process.pid))
    return StackRecord(ProcessId(1, 0.0), "http://a", "http://b", processes={"child": found})


def test_orphans_are_ended_with_all_that_they_started(data_dir):
    code = "import os, time\nif os.fork() == 0: time.sleep(60)\nprint('up', flush=True); time.sleep(60)"
    with group(code) as leader:
        leader.stdout.readline()
        write_record(data_dir, record_of(leader))
        assert end_orphans(read_record(data_dir)) == 1
        assert leader.wait(5) == -signal.SIGKILL


def test_members_of_a_group_whose_leader_is_gone_are_ended_too():
    code = (
        "import os, time\nchild = os.fork()\nif child == 0: time.sleep(60)\n"
        "print(child, flush=True); time.sleep(0.3); os._exit(0)"
    )
    with group(code) as leader:
        member = int(leader.stdout.readline())
        record = record_of(leader)
        leader.wait(5)
        assert end_orphans(record) == 1
    deadline = time.monotonic() + 5
    while start_time(member) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_only_has_the_same_number_is_left_alone():
    with group("import time; time.sleep(60)") as stranger:
        assert end_orphans(record_of(stranger, started=start_time(stranger.pid) - 100)) == 0
        assert stranger.poll() is None
        stranger.kill()


def test_a_damaged_record_counts_as_none(data_dir):
    record_path(data_dir).write_text("[")
    assert read_record(data_dir) is None
    assert end_orphans(None) == 0


def test_only_living_processes_are_identified():
    with group("pass") as dead:
        dead.wait()
    assert set(identify({"me": os.getpid(), "dead": dead.pid})) == {"me"}


def test_a_taken_port_is_an_error_that_names_it_and_its_setting():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=rf"{port} .*SOURCEMILL_PORT") as caught:
            choose_ports([PortWish("127.0.0.1", port, "SOURCEMILL_PORT")])
    assert caught.value.code == "port_taken"


def test_free_ports_are_all_different():
    assert len(set(choose_ports([PortWish("127.0.0.1", 0, "X")] * 20))) == 20
