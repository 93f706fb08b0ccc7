"""A worker process's life: open resources when it starts (never across a fork), say that it is alive, close.

When a pool child is killed, its parent learns it at once and ends the child's leases here; when a whole worker is
killed, its leases run out.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import structlog
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery, signals

from pipeline.errors import SourcemillError, TransientError
from pipeline.flows.answer import publish
from pipeline.jobs import StepKind
from pipeline.logs import configure_logging
from pipeline.settings import load_settings
from pipeline.stores.database import Database
from pipeline.stores.ledger_sql import SqlLedger
from pipeline.wiring import OpenResources, open_resources
from workers.doorbell import ring
from workers.policies import POLICIES
from workers.step_task import Handler, Worker

log = structlog.get_logger()

_SEEN_EVERY_S = 5.0


class Process:
    """What one worker process has open."""

    def __init__(self, app: Celery, name: str, queues: Collection[str]) -> None:
        self.app = app
        self.name = f"{name}:{os.getpid()}"
        self.queues = sorted(queues)
        self.resources: OpenResources = open_resources(load_settings(), POLICIES)
        self._stopped = threading.Event()
        self._presence = threading.Thread(target=self._say_alive, name="presence", daemon=True)
        self._worker: Worker | None = None

    def start(self) -> None:
        self.resources.warm(self.queues)
        self._presence.start()

    def stop(self) -> None:
        self._stopped.set()
        self._presence.join(timeout=_SEEN_EVERY_S)
        try:
            self.resources.watch.forget(self.name)
        except TransientError as error:  # it is forgotten anyway once it has been silent for a while
            log.warning("farewell_failed", error=error.message)
        self.resources.close()

    def worker(self, handlers: Mapping[StepKind, Handler]) -> Worker:
        if self._worker is None:
            self._worker = Worker(self.resources, handlers, self.ring, self.publish)
        return self._worker

    def ring(self, queues: Collection[str] | None = None) -> None:
        ring(self.app, self.resources.relay, queues)

    def publish(self, subject: str) -> None:
        """Write a final message's terminal event; should that fail now, the reconciler does it later."""
        if ":" in subject:  # a document revision; only messages have streams
            return
        try:
            publish(self.resources, subject)
            self.resources.watch.set_published(subject)
        except SourcemillError as error:
            log.warning("publish_failed", message_id=subject, error=error.message)

    def _say_alive(self) -> None:
        while True:
            try:
                self.resources.watch.seen(self.name, self.queues, os.getpid())
            except TransientError as error:
                log.warning("presence_failed", error=error.message)
            if self._stopped.wait(_SEEN_EVERY_S):
                return


_processes: dict[int, Process] = {}


def process() -> Process:
    """This process's resources. Keyed by pid, so a fork can never use its parent's connections."""
    return _processes[os.getpid()]


def connect(app: Celery) -> None:
    """Tie the life of `Process` to Celery's signals. `weak=False`: nothing else holds these functions."""
    signals.setup_logging.connect(_setup_logging, weak=False)
    signals.worker_init.connect(partial(_on_worker_init, app), weak=False)
    signals.worker_process_init.connect(partial(_on_child_start, app), weak=False)
    signals.worker_process_shutdown.connect(_on_stop, weak=False)
    signals.worker_shutdown.connect(_on_stop, weak=False)
    signals.task_failure.connect(_on_task_failure, weak=False)


def _setup_logging(**_: Any) -> None:
    configure_logging(load_settings().log_level)


def _on_worker_init(app: Celery, sender: Any, **_: Any) -> None:
    """Threads pools work in this very process; a prefork parent must open nothing that its children would inherit."""
    if "prefork" not in sender.pool_cls.__module__:
        _start(app, sender.hostname, os.getpid())


def _on_child_start(app: Celery, **_: Any) -> None:
    _start(app, "pool", os.getppid())


def _start(app: Celery, name: str, worker_pid: int) -> None:
    """Celery would log an error of this and go on with a worker that can't work, so we end the whole worker."""
    try:
        _processes.clear()
        _processes[os.getpid()] = started = Process(app, name, app.amqp.queues.consume_from)
        started.start()
    except SourcemillError as error:
        log.critical("worker_can_not_start", code=error.code, reason=error.message)
        os.kill(worker_pid, signal.SIGTERM)
        raise SystemExit(1) from error


def _on_stop(**_: Any) -> None:
    running = _processes.pop(os.getpid(), None)
    if running is not None:
        running.stop()


def _on_task_failure(task_id: str, exception: BaseException, **_: Any) -> None:
    """In the parent: a pool child died in the middle of a message. End its leases now, so it is tried again soon."""
    if not isinstance(exception, WorkerLostError | TimeLimitExceeded):
        return
    database = Database(load_settings().catalog_url)
    try:
        ended = SqlLedger(database, POLICIES).end_leases(task_id)
        log.warning("pool_child_died", task_id=task_id, reason=str(exception), steps=ended)
    finally:
        database.close()
