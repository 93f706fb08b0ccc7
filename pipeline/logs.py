"""Structured logs: one JSON object a line on standard error, for every process alike."""

from __future__ import annotations

import logging

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

#: Libraries whose INFO is a line for each request or message; our own lines say more.
_CHATTY = ("httpx", "alembic.runtime.migration", "celery.worker.strategy", "celery.app.trace", "celery.beat")


def configure_logging(level: str) -> None:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Local variables could hold keys and the text of documents, so tracebacks go without them.
        structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
