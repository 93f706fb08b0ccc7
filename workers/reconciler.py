"""The sweep that beat starts every second: what got stuck between ledger, broker and a dead worker moves on.

One owner at a time; a sweep that is late or doubled changes nothing that another has done.
"""

from __future__ import annotations

import structlog
from kombu.exceptions import OperationalError

from pipeline.clock import now
from pipeline.jobs import StepKind
from pipeline.stores.ledger_sql import Committed
from workers.doorbell import queued_step_ids
from workers.lifecycle import Process

log = structlog.get_logger()

_OWN_FOR_S = 10.0
#: A message is popped and claimed within milliseconds; after this time an unclaimed step that is not queued is lost.
_UNCLAIMED_S = 5.0
_UNPUBLISHED_S = 2.0
#: Cleaning is never given up: what can't be removed now is tried again.
_REMOVE_AGAIN_S = 60.0


def reconcile(process: Process) -> None:
    watch = process.resources.watch
    if not watch.take_lease("reconcile", process.name, _OWN_FOR_S):
        return
    _sweep(process)
    watch.take_lease("reconcile", process.name, 0.0)


def _sweep(process: Process) -> None:
    for committed in _end_what_is_over(process):
        for subject in committed.final:
            process.publish(subject)
    for message_id in process.resources.watch.unpublished(_UNPUBLISHED_S):
        process.publish(message_id)
    process.resources.ledger.reopen(StepKind.REMOVE, _REMOVE_AGAIN_S)
    _resend_lost(process)
    process.ring()


def _end_what_is_over(process: Process) -> list[Committed]:
    ledger, settings = process.resources.ledger, process.resources.settings
    late = "It did not answer within its deadline."
    return [
        ledger.expire(),
        ledger.end_overdue(StepKind.RETRIEVE, settings.retrieve_deadline_s, "deadline", late),
        ledger.end_overdue(StepKind.AUTO_QUERY, settings.answer_deadline_s, "deadline", late),
        ledger.end_overdue(StepKind.GENERATE, settings.answer_deadline_s, "deadline", late),
    ]


def _resend_lost(process: Process) -> None:
    """Steps that were sent, are not claimed, and are in no queue: the broker lost them, or a worker died with them."""
    relay = process.resources.relay
    for queue, step_ids in relay.unclaimed(now() - _UNCLAIMED_S).items():
        try:
            lost = step_ids - queued_step_ids(process.app, queue)
        except (OperationalError, OSError) as error:
            log.warning("broker_unreachable", queue=queue, error=str(error))
            return
        if lost:
            log.warning("steps_resent", queue=queue, steps=len(lost))
            relay.resend(lost)
