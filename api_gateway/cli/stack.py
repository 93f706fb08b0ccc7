"""`sourcemill up`: one data folder's stack in the foreground, from its first file to its last process."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from api_gateway.cli.files import exclusive, make_folders
from api_gateway.cli.output import Output
from api_gateway.cli.plan import Plan, make_plan, prepare_catalog
from api_gateway.cli.process import tail
from api_gateway.cli.readiness import Readiness
from api_gateway.cli.record import end_orphans, identify, read_record, record_path, write_record
from api_gateway.cli.services import services
from api_gateway.cli.signals import StopRequest
from api_gateway.cli.supervisor import POLL_S, Exit, Supervisor
from api_gateway.cli.valkey import answers
from pipeline.errors import TransientError
from pipeline.settings import Settings

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
#: A process that dies this often before the stack is ready will not get well by itself.
MAX_EARLY_EXITS = 3
_PRIVATE_UMASK = 0o077


def run_stack(settings: Settings, output: Output, stop: StopRequest) -> None:
    """Run until `stop` is requested.

    Raises ConflictError `already_running`, ConfigurationError (`port_taken`, …), TransientError `not_ready`.
    """
    os.umask(_PRIVATE_UMASK)
    make_folders(settings.data_dir)
    with exclusive(settings.data_dir):
        orphans = end_orphans(read_record(settings.data_dir))
        if orphans:
            output.remark(f"Ended {orphans} processes that a killed stack had left.")
        _Stack(make_plan(settings), output, stop).run()


class _Stack:
    def __init__(self, plan: Plan, output: Output, stop: StopRequest) -> None:
        self._begun = time.monotonic()
        self._plan = plan
        self._record = plan.record
        self._output = output
        self._stop = stop
        self._data_dir = plan.settings.data_dir
        self._supervisor = Supervisor(self._data_dir, self._data_dir / "logs", self._note_exit)
        self._exits: Counter[str] = Counter()

    def run(self) -> None:
        try:
            if self._start():
                self._watch()
        finally:
            self._end()

    def _start(self) -> bool:
        """Whether everything serves; False when we were asked to stop first."""
        self._output.line(f"Starting Sourcemill on {self._data_dir}")
        if self._plan.broker is not None:
            self._supervisor.start([self._plan.broker])
            self._write_record()
        new_key = prepare_catalog(self._plan)
        credentials = self._plan.credentials.with_api_key(new_key) if new_key else self._plan.credentials
        if not self._wait(self._missing_broker):
            return False
        self._supervisor.start(services(self._plan.settings, credentials))
        self._write_record()
        with Readiness(self._record.url, self._record.flower_url, credentials.api_key) as readiness:
            ready = self._wait(readiness.missing)
        if ready:
            self._record = replace(self._record, ready=True)
            self._write_record()
            self._announce(new_key)
        return ready

    def _missing_broker(self) -> list[str]:
        return [] if answers(self._plan.broker_url) else ["valkey"]

    def _wait(self, missing: Callable[[], list[str]]) -> bool:
        deadline = time.monotonic() + READY_TIMEOUT_S
        with self._spinner():
            while not self._stop.requested:
                self._tick()
                waiting = missing()
                if not waiting:
                    return True
                if time.monotonic() > deadline:
                    raise self._not_ready(waiting)
                time.sleep(POLL_S)
        return False

    def _spinner(self) -> AbstractContextManager[object]:
        shown = self._output.console.is_terminal and not self._output.as_json
        return self._output.console.status("Waiting for every process to serve") if shown else nullcontext()

    def _not_ready(self, names: list[str]) -> TransientError:
        logs = "\n".join(f"--- {self._supervisor.log(name)}\n{tail(self._supervisor.log(name))}" for name in names)
        return TransientError(f"Not ready: {', '.join(names)}. The last lines of their logs:\n{logs}", code="not_ready")

    def _watch(self) -> None:
        while not self._stop.requested:
            self._tick()
            time.sleep(POLL_S)

    def _tick(self) -> None:
        if self._supervisor.tick():
            self._write_record()

    def _note_exit(self, exit_: Exit) -> None:
        self._output.event(
            f"{exit_.name} ended ({exit_.reason}) after {exit_.lived_s:.1f} s; restart in {exit_.restart_in_s:.1f} s",
            event="exit",
            process=exit_.name,
            reason=exit_.reason,
        )
        self._exits[exit_.name] += 1
        if not self._record.ready and self._exits[exit_.name] >= MAX_EARLY_EXITS:
            raise self._not_ready([exit_.name])

    def _write_record(self) -> None:
        self._record = replace(self._record, processes=identify(self._supervisor.pids()))
        write_record(self._data_dir, self._record)

    def _announce(self, new_key: str | None) -> None:
        seconds = time.monotonic() - self._begun
        credentials = self._plan.credentials
        lines = [
            f"Ready in {seconds:.1f} s.",
            f"  API      {self._record.url}/docs",
            f"  Flower   {self._record.flower_url}  (user {credentials.flower_user})",
            f"  Logs     {self._data_dir / 'logs'}",
            f"  Secrets  {self._data_dir / 'credentials.json'}  (API key, Flower's password)",
        ]
        if sys.stdout.isatty():  # never into a log
            lines += self._secrets(new_key)
        self._output.event(
            "\n".join(lines),
            event="ready",
            seconds=round(seconds, 2),
            url=self._record.url,
            flower_url=self._record.flower_url,
            api_key=new_key,
        )

    def _secrets(self, new_key: str | None) -> list[str]:
        key = [f"  API key  {new_key}  (shown this once)"] if new_key else []
        return [*key, f"  Password {self._plan.credentials.flower_password}  (Flower)", "Ctrl-C stops everything."]

    def _end(self) -> None:
        self._output.line("Stopping.")
        begun = time.monotonic()
        late: list[str] = []
        try:
            late = self._supervisor.stop(STOP_TIMEOUT_S)
        finally:  # a second Ctrl-C comes through here
            self._supervisor.kill()
            record_path(self._data_dir).unlink(missing_ok=True)
        seconds = time.monotonic() - begun
        remark = f" Did not stop in time and were killed: {', '.join(late)}." if late else ""
        self._output.event(
            f"Stopped in {seconds:.1f} s.{remark}", event="stopped", seconds=round(seconds, 2), killed=late
        )
