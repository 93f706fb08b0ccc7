"""Starts a stack in the background and waits until it serves."""

from __future__ import annotations

import subprocess
import sys
import time

from api_gateway.cli.files import make_folders, refuse_owned
from api_gateway.cli.process import tail
from api_gateway.cli.record import StackRecord, read_record
from api_gateway.cli.services import code_path
from pipeline.errors import TransientError
from pipeline.settings import Settings, child_environment, process_environment

POLL_S = 0.05


def start_detached(settings: Settings) -> StackRecord:
    """A supervisor in a session of its own, so that no terminal takes it along; its words go to `logs/up.log`.

    Interrupted, or when it does not get ready, it is asked to stop. Raises ConflictError, TransientError `not_ready`.
    """
    make_folders(settings.data_dir)
    refuse_owned(settings.data_dir)
    log = settings.data_dir / "logs" / "up.log"
    environment = process_environment() | child_environment(settings) | {"PYTHONPATH": code_path()}
    command = (sys.executable, "-m", "api_gateway.cli", "up")
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 -- ourselves
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return _wait(settings, process)
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _wait(settings: Settings, process: subprocess.Popen[bytes]) -> StackRecord:
    while process.poll() is None:
        record = read_record(settings.data_dir)
        if record and record.ready and record.supervisor.pid == process.pid:
            return record
        time.sleep(POLL_S)
    words = tail(settings.data_dir / "logs" / "up.log", lines=40)
    raise TransientError(f"The stack did not start:\n{words}", code="not_ready")
