"""All parsing happens in a child process; this is the worker's side of it.

The child holds no credentials (its environment is made here, nothing is inherited), is bounded in memory, CPU and wall
time, and is replaced when it died, ran over a limit or has served its number of calls. What it does to confine
itself is in parser.py.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pipeline.errors import DocumentError, ParserCrashError
from pipeline.ingest.limits import MIB, ParserLimits
from pipeline.ingest.wire import (
    HEADER,
    Call,
    Crash,
    ExtractCall,
    Kind,
    LocateCall,
    ProbeCall,
    Refusal,
    Start,
    frame,
)
from pipeline.models import Box, ExtractedShard, MediaType, Probe, dump, load

_READ_BYTES = 1024 * 1024
_STDERR_TAIL_CHARACTERS = 300
#: A parser's Python objects can be larger as JSON than `result_bytes` only by this much (escapes, keys).
_FRAME_SLACK_BYTES = 1 * MIB
T = TypeVar("T")


class ParserChild:
    """The warm parser process. Started at the first call; safe to use from threads (one call at a time).

    Every call raises DocumentError when the document is at fault, and ParserCrashError when the process died, ran
    over a limit or failed; the message says which. After a fork the copy starts a process of its own.
    """

    def __init__(self, limits: ParserLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def probe(self, path: Path, name: str) -> Probe:
        """Detect the type, count the pages, refuse what can't be read. `name` is what the owner calls the file."""
        return self._call(Call(probe=ProbeCall(str(path), name)), Probe)

    def extract(self, path: Path, media_type: MediaType, first: int, last: int) -> ExtractedShard:
        """Pages `first` to `last`, counted from 1, inclusive."""
        return self._call(Call(extract=ExtractCall(str(path), media_type, first, last)), ExtractedShard)

    def locate(self, path: Path, page_number: int, start: int, end: int) -> tuple[Box, ...]:
        """Boxes of the characters `[start, end)` of a PDF page's text, one a line."""
        return self._call(Call(locate=LocateCall(str(path), page_number, start, end)), tuple[Box, ...])

    @property
    def pid(self) -> int | None:
        """Of the process that serves the next call, None before the first."""
        return self._process.pid if self._process else None

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, call: Call, result: type[T]) -> T:
        with self._lock:
            process = self._ready()
            try:
                kind, payload = process.exchange(frame(Kind.CALL, dump(call)))
            except BaseException:
                self._drop()
                raise
            if kind is Kind.CRASHED:
                self._drop()
        if kind is Kind.REFUSED:
            refusal = load(Refusal, payload)
            raise DocumentError(refusal.message, code=refusal.code)
        if kind is Kind.CRASHED:
            raise ParserCrashError(f"The parser gave up: {load(Crash, payload).reason}.")
        return load(result, payload)

    def _ready(self) -> _Process:
        """A living process of this very program (not of the one that forked us) with calls left."""
        if self._process and not self._process.is_usable():
            self._drop()
        if self._process is None:
            self._process = _Process(self._limits)
        return self._process

    def _drop(self) -> None:
        if self._process:
            self._process.close()
        self._process = None


class _Process:
    """One child: its pipes, its deadline, and the reason when it fails."""

    def __init__(self, limits: ParserLimits) -> None:
        self._limits = limits
        self._owner = os.getpid()
        self._calls = 0
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "pipeline.ingest.parser"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            bufsize=0,
        )
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in self._pipes())
        os.set_blocking(self._stdout, False)
        # Nobody drains stderr while the child works, so it must not block on a full pipe either.
        os.set_blocking(self._stderr, False)
        self._greeting = frame(Kind.START, dump(Start(limits)))

    @property
    def pid(self) -> int:
        return self._child.pid

    def is_usable(self) -> bool:
        is_ours = self._owner == os.getpid()
        return is_ours and self._child.poll() is None and self._calls < self._limits.documents_per_child

    def exchange(self, request: bytes) -> tuple[Kind, bytes]:
        """Send one call and wait for its reply, within `wall_s`."""
        deadline = time.monotonic() + self._limits.wall_s
        self._calls += 1
        self._send(self._greeting + request)
        self._greeting = b""
        kind, length = HEADER.unpack(self._receive(HEADER.size, deadline))
        if length > self._limits.result_bytes + _FRAME_SLACK_BYTES:
            raise ParserCrashError("The parser answered more than its limit allows.")
        return Kind(kind), self._receive(length, deadline)

    def close(self) -> None:
        """End the child, which holds nothing worth saving; one that a fork copied belongs to the other program."""
        for pipe in self._pipes():
            pipe.close()
        if self._owner != os.getpid():
            self._child.returncode = 0
            return
        self._child.kill()
        self._child.wait()

    def _pipes(self) -> list[Any]:
        return [pipe for pipe in (self._child.stdin, self._child.stdout, self._child.stderr) if pipe]

    def _send(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._stdin, data) :]
        except BrokenPipeError as error:
            raise self._death() from error

    def _receive(self, size: int, deadline: float) -> bytes:
        received = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while len(received) < size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise ParserCrashError(f"The parser was stopped after {self._limits.wall_s:g} seconds.")
                piece = os.read(self._stdout, min(_READ_BYTES, size - len(received)))
                if not piece:
                    raise self._death()
                received += piece
        return bytes(received)

    def _death(self) -> ParserCrashError:
        """Why the child's pipe ended, from its exit status and the last thing it said."""
        status = self._child.wait()
        if status == -signal.SIGXCPU:
            return ParserCrashError(f"The parser used more than {self._limits.cpu_s} seconds of CPU time.")
        said = self._last_words()
        if status < 0:
            memory_mib = self._limits.memory_bytes // MIB
            name = signal.Signals(-status).name
            return ParserCrashError(f"The parser was killed by {name} (memory limit {memory_mib} MiB){said}.")
        return ParserCrashError(f"The parser exited with status {status}{said}.")

    def _last_words(self) -> str:
        try:
            lines = os.read(self._stderr, 65536).decode(errors="replace").split("\n")
        except BlockingIOError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f": {last[:_STDERR_TAIL_CHARACTERS]}" if last else ""


def _environment() -> dict[str, str]:
    """All that the child knows: where our package is, UTF-8, few malloc arenas (they count as address space)."""
    return {
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "LC_ALL": "C.UTF-8",
        "MALLOC_ARENA_MAX": "2",
    }
