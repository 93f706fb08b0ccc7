"""The Celery tasks, by name; each runs the bundle of steps in its message. Messages carry step ids only."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from pipeline.flows import answer, ingest
from pipeline.jobs import StepKind
from workers import lifecycle, reconciler
from workers.policies import POLICIES, RECONCILE
from workers.step_task import Handler, one_by_one, together

HANDLERS: dict[StepKind, Handler] = {
    StepKind.PLAN: one_by_one(ingest.plan),
    StepKind.EXTRACT: one_by_one(ingest.extract),
    StepKind.ASSEMBLE: one_by_one(ingest.assemble),
    StepKind.INDEX_TEXT: together(ingest.index_text),
    StepKind.EMBED: together(ingest.embed),
    StepKind.INDEX_VECTORS: together(ingest.index_vectors),
    StepKind.ACTIVATE: one_by_one(ingest.activate),
    StepKind.REMOVE: one_by_one(ingest.remove),
    StepKind.AUTO_QUERY: one_by_one(answer.auto_query),
    StepKind.RETRIEVE: one_by_one(answer.retrieve),
    StepKind.GENERATE: one_by_one(answer.generate),
}


def _limits(kind: StepKind) -> dict[str, Any]:
    policy = POLICIES[kind]
    if policy.pool != "prefork":
        return {}
    return {"soft_time_limit": policy.soft_limit_s, "time_limit": policy.hard_limit_s}


def _run(task: Task, step_ids: list[int]) -> None:
    lifecycle.process().worker(HANDLERS).run(step_ids, task.request.id)


for _kind in HANDLERS:
    shared_task(name=_kind.value, bind=True, **_limits(_kind))(_run)


@shared_task(name=RECONCILE)
def reconcile() -> None:
    reconciler.reconcile(lifecycle.process())
