"""Ringing the broker for steps that the relay released, and looking into its queues."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence

import orjson
import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from pipeline.stores.relay_sql import Bundle, SqlRelay

log = structlog.get_logger()


def ring(app: Celery, relay: SqlRelay, queues: Collection[str] | None = None) -> int:
    """Release what may run now and send it; returns the number of messages.

    A broker that can't be reached loses nothing: the steps are ready in the ledger and the reconciler rings again.
    """
    bundles = relay.release(queues)
    for n, bundle in enumerate(bundles):
        try:
            _send(app, bundle)
        except (OperationalError, OSError) as error:
            log.warning("broker_unreachable", error=str(error), unsent=len(bundles) - n)
            relay.unsend(bundles[n:])
            return n
    return len(bundles)


def _send(app: Celery, bundle: Bundle) -> None:
    app.send_task(
        bundle.kind.value,
        args=[list(bundle.step_ids)],
        queue=bundle.queue,
        ignore_result=True,
        retry=False,
    )


def queued_step_ids(app: Celery, queue: str) -> set[int]:
    """The step ids in the messages that wait in a queue; the relay's credit keeps that list short.

    Raises OperationalError when the broker can't be reached.
    """
    with app.connection_for_read() as connection:
        messages: Sequence[bytes] = connection.default_channel.client.lrange(queue, 0, -1)
    return {step_id for message in messages for step_id in _step_ids(message)}


def _step_ids(message: bytes) -> list[int]:
    args = orjson.loads(base64.b64decode(orjson.loads(message)["body"]))[0]
    return args[0] if args else []
