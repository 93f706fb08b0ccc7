"""`sourcemill status`: queues, documents, and the local processes."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import psutil
from rich.console import Group
from rich.live import Live

from api_gateway.cli.api import Api
from api_gateway.cli.output import Output, size, text_table
from api_gateway.cli.process import is_same
from api_gateway.cli.record import StackRecord

WATCH_S = 1.0


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process of the stack with all that it started; resident memory of shared pages counts in each."""

    name: str
    pid: int
    uptime_s: float
    rss_bytes: int
    children: int


def show_status(api: Api, record: StackRecord | None, output: Output) -> None:
    status = _collect(api, record)
    output.print(_page(status))
    output.data(status)


def watch_status(api: Api, record: StackRecord | None, output: Output) -> None:
    """Until interrupted; with JSON one line a second, and outside a terminal one page after the other."""
    while not output.console.is_terminal:
        show_status(api, record, output)
        time.sleep(WATCH_S)
    with Live(console=output.console, auto_refresh=False, transient=True) as live:
        while True:
            status = _collect(api, record)
            output.data(status)
            if not output.as_json:
                live.update(_page(status), refresh=True)
            time.sleep(WATCH_S)


def _collect(api: Api, record: StackRecord | None) -> dict[str, Any]:
    processes = [asdict(each) for each in processes_of(record)] if record else []
    return {"url": api.url, **api.get("/v1/status"), "processes": processes}


def processes_of(record: StackRecord) -> list[ProcessStatus]:
    """Those that still live."""
    found = []
    for name, each in record.processes.items():
        if is_same(each.pid, each.started):
            family = _family(each.pid)
            rss = sum(_rss(process) for process in family)
            found.append(ProcessStatus(name, each.pid, round(time.time() - each.started, 1), rss, len(family) - 1))
    return found


def _family(pid: int) -> list[psutil.Process]:
    try:
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _page(status: dict[str, Any]) -> Group:
    queues = [(q["queue"], q["ready"], q["running"], q["dead"], q["workers"] or "none!") for q in status["queues"]]
    parts = [text_table(("queue", "ready", "running", "dead", "workers"), queues)]
    documents = list(status["documents"].items()) or [("none yet", 0)]
    parts.append(text_table(("documents", "count"), documents))
    processes = [
        (p["name"], p["pid"], f"{p['uptime_s']:.0f} s", size(p["rss_bytes"]), p["children"])
        for p in status["processes"]
    ]
    if processes:
        parts.append(text_table(("process", "pid", "up for", "memory", "children"), processes))
    return Group(*parts)
