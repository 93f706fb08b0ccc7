"""How a foreground command is asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Set by the first signal; the second one doesn't wait any longer and raises KeyboardInterrupt.

    A plain flag, not an event: a handler runs inside the main thread, where an event's lock may be taken.
    """

    def __init__(self) -> None:
        self.requested = False

    def handle(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt(signal.Signals(number).name)
        self.requested = True


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request while the context is open; what nohup ignores stays so."""
    request = StopRequest()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number in numbers if before[number] is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, request.handle)
    try:
        yield request
    finally:
        for number in heard:
            signal.signal(number, before[number])


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit while the context is open, so that what is around it cleans up."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
