"""The parser process: reads calls from stdin, answers on what was stdout, owns nothing and reaches nothing.

Run by sandbox.py as ``python -m pipeline.ingest.parser``. It bounds its own memory, CPU time and file writes, refuses
sockets and programs, and ends with its parent: a thread waits on stdin, and at its end leaves at once, even while a
parser is busy. (A parent-death signal would fire when the *thread* that started us ends, not only its process.)
"""

from __future__ import annotations

import logging
import os
import queue
import resource
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import DocumentError
from pipeline.ingest.extract import extract_pages, locate, probe
from pipeline.ingest.limits import MIB, ParserLimits
from pipeline.ingest.wire import HEADER, Call, Crash, Kind, Refusal, Result, Start, frame
from pipeline.models import dump, load

_REFUSED_EVENTS = ("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.fork", "os.system", "os.spawn", "pty.")


def main() -> None:
    requests, replies = _take_pipes()
    logging.disable()
    limits = load(Start, _read_frame(requests)[1]).limits
    _confine(limits)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, calls), daemon=True).start()
    while True:
        call = load(Call, calls.get())
        _allow_cpu(limits.cpu_s)
        replies.write(_answer(call, limits))
        replies.flush()


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our own copies of stdin and stdout; what C libraries print to fd 1 goes to stderr instead."""
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb")


def _confine(limits: ParserLimits) -> None:
    """No core dumps, no file writes, a bound on address space (macOS accepts none), no network, no programs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    sys.addaudithook(_refuse)


def _refuse(event: str, _arguments: tuple[Any, ...]) -> None:
    if event.startswith(_REFUSED_EVENTS):
        raise PermissionError(f"A parser must not use {event}.")


def _allow_cpu(seconds: int) -> None:
    """Only the soft limit moves: at it the kernel sends SIGXCPU, which ends the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _receive(requests: BinaryIO, calls: queue.SimpleQueue[bytes]) -> None:
    try:
        while True:
            calls.put(_read_frame(requests)[1])
    except EOFError:
        os._exit(0)


def _read_frame(stream: BinaryIO) -> tuple[Kind, bytes]:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        raise EOFError
    kind, length = HEADER.unpack(header)
    return Kind(kind), stream.read(length)


def _answer(call: Call, limits: ParserLimits) -> bytes:
    try:
        payload = dump(_run(call, limits))
    except DocumentError as error:
        return frame(Kind.REFUSED, dump(Refusal(error.code, error.message)))
    except MemoryError:
        return frame(Kind.CRASHED, dump(Crash(f"it needed more than {limits.memory_bytes // MIB} MiB of memory")))
    except Exception as error:  # noqa: BLE001 - the process edge: what a parser raises on a hostile file must not be lost
        return frame(Kind.CRASHED, dump(Crash(f"it failed with {type(error).__name__}: {error}"[:500])))
    if len(payload) > limits.result_bytes:
        message = f"The text is larger than {limits.result_bytes // MIB} MiB."
        return frame(Kind.REFUSED, dump(Refusal("too_much_text", message)))
    return frame(Kind.RESULT, payload)


def _run(call: Call, limits: ParserLimits) -> Result:
    if call.probe:
        return probe(Path(call.probe.path), call.probe.name, limits)
    if call.extract:
        extract = call.extract
        return extract_pages(Path(extract.path), extract.media_type, extract.first, extract.last)
    if call.locate:
        quote = call.locate
        return locate(Path(quote.path), quote.page_number, quote.start, quote.end)
    raise ValueError("An empty call.")


if __name__ == "__main__":
    main()
