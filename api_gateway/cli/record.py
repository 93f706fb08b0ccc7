"""`run/stack.json`: what runs on a data folder, for the other commands and for the next start."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from api_gateway.cli.files import write_private
from api_gateway.cli.process import is_same, signal_group, start_time
from pipeline.models import dump, load


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for ever: numbers are used again, but not with the same start (seconds since the epoch)."""

    pid: int
    started: float


@dataclass(frozen=True, slots=True)
class StackRecord:
    supervisor: ProcessId
    url: str
    flower_url: str
    ready: bool = False
    processes: Mapping[str, ProcessId] = field(default_factory=dict)


def record_path(data_dir: Path) -> Path:
    return data_dir / "run" / "stack.json"


def write_record(data_dir: Path, record: StackRecord) -> None:
    write_private(record_path(data_dir), dump(record))


def read_record(data_dir: Path) -> StackRecord | None:
    """None when there is none or it is damaged: it is rewritten at the next start anyway."""
    try:
        return load(StackRecord, record_path(data_dir).read_bytes())
    except (OSError, ValueError):
        return None


def identify(pids: Mapping[str, int]) -> dict[str, ProcessId]:
    """The living ones among `pids`."""
    found = ((name, pid, start_time(pid)) for name, pid in pids.items())
    return {name: ProcessId(pid, started) for name, pid, started in found if started is not None}


def end_orphans(record: StackRecord | None) -> int:
    """Kill the groups that a killed supervisor left; how many there were. Only call it as the folder's owner."""
    groups = [each for each in record.processes.values() if _is_left(each)] if record else []
    for each in groups:
        signal_group(each.pid, signal.SIGKILL)
    return len(groups)


def _is_left(leader: ProcessId) -> bool:
    """Whether the leader still lives, or is gone but members of its group that are no older live on."""
    if start_time(leader.pid) is not None:
        return is_same(leader.pid, leader.started)
    members = (pid for pid in psutil.pids() if _group(pid) == leader.pid)
    return any((start_time(pid) or 0.0) >= leader.started for pid in members)


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None
