"""One child process of the stack: how it starts, what it leaves behind, how it ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

#: A log that grows beyond this is moved to `<name>.log.1`, replacing the one before.
MAX_LOG_BYTES = 16 * 1024 * 1024

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """What to run and how to end it: lower `stop_rank` first, equal ranks together."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    nice: int = 0
    stop_rank: int = 0
    stop_signal: signal.Signals = signal.SIGTERM


def spawn(spec: ProcessSpec, log: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start a child in a process group of its own, its output appended to `log`.

    Call it from the main thread only: on Linux the child is killed when the thread that made it ends, so
    that `kill -9` of the supervisor leaves nothing behind. Raises OSError when the program can't be run.
    """
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 -- the commands are ours, see stack.py
            spec.command,
            env=spec.environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=partial(_prepare, spec.nice, os.getpid(), _prctl()),  # noqa: PLW1509 -- no threads here
        )


def _prctl() -> Callable[[int, int], int] | None:
    """Looked up before the fork: a forked child must not load libraries."""
    return ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def _prepare(nice: int, parent: int, prctl: Callable[[int, int], int] | None) -> None:
    os.nice(nice)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above could take effect
            os._exit(1)


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a child and everything that it started; a group without living members is no error."""
    with suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM when only zombies are left
        os.killpg(leader, number)


def start_time(pid: int) -> float | None:
    """When the process began, which with its id names it for ever; None when there is none."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_same(pid: int, started: float) -> bool:
    """Whether `pid` is still the process that began at `started`, not a later one with its number."""
    found = start_time(pid)
    return found is not None and abs(found - started) < 1.0


def describe_exit(returncode: int) -> str:
    """A return code in words: `exit code 1`, or the signal's name as Popen encodes it, `SIGKILL`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def bound_log(log: Path, limit_bytes: int = MAX_LOG_BYTES) -> None:
    """Copy a log that is too long aside and empty it; its writer appends, so it goes on at the start."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > limit_bytes:
            shutil.copyfile(log, log.with_name(log.name + ".1"))
            os.truncate(log, 0)


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log, for an error message."""
    with suppress(FileNotFoundError), log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 8192))
        return "\n".join(stream.read().decode(errors="replace").splitlines()[-lines:])
    return ""
