"""`sourcemill down`: ends the stack of a data folder, whoever started it."""

from __future__ import annotations

import os
import signal
import time

from api_gateway.cli.files import exclusive, is_owned
from api_gateway.cli.process import is_same
from api_gateway.cli.record import end_orphans, read_record, record_path
from api_gateway.cli.stack import STOP_TIMEOUT_S
from pipeline.errors import TransientError
from pipeline.settings import Settings

#: The supervisor stops within its own limit; this is that and some air.
TIMEOUT_S = STOP_TIMEOUT_S + 5.0
POLL_S = 0.05


def stop_stack(settings: Settings) -> bool:
    """Whether there was anything to stop; returns when it is gone. Raises TransientError `not_stopped`."""
    if is_owned(settings.data_dir):
        _ask_to_stop(settings)
        return True
    return _clean(settings)


def _ask_to_stop(settings: Settings) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    asked = False
    while is_owned(settings.data_dir):
        record = read_record(settings.data_dir)
        # It owns the folder a moment before it writes its record, so there may be none yet.
        if not asked and record and is_same(record.supervisor.pid, record.supervisor.started):
            os.kill(record.supervisor.pid, signal.SIGTERM)
            asked = True
        if time.monotonic() > deadline:
            raise TransientError(f"The stack on {settings.data_dir} did not stop in time.", code="not_stopped")
        time.sleep(POLL_S)


def _clean(settings: Settings) -> bool:
    """What a supervisor that was killed could not do."""
    record = read_record(settings.data_dir)
    if record is None:
        return False
    with exclusive(settings.data_dir):
        ended = end_orphans(record)
        record_path(settings.data_dir).unlink(missing_ok=True)
    return ended > 0
