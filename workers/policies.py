"""POLICIES: how each kind of step runs. The only source for routes, limits, the worker table and the documents.

Limits are seconds. A bundle's limit covers the whole message, so limits are generous and leases short: a lease is
renewed while the work goes on, and runs out soon after its worker died.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.jobs import Policy, StepKind

BULK_LEASE_S = 15.0
#: Someone waits for these, so a dead worker must show sooner.
CHAT_LEASE_S = 6.0


def _bulk(queue: str, pool: str, *, bundle: int, weight: int, credit: int, limits: tuple[int, int]) -> Policy:
    return Policy(
        queue=queue,
        pool=pool,
        soft_limit_s=limits[0],
        hard_limit_s=limits[1],
        lease_s=BULK_LEASE_S,
        max_attempts=4,
        backoff_s=1.0,
        backoff_max_s=60.0,
        bundle=bundle,
        bundle_weight=weight,
        credit=credit,
        wait_limit_s=24 * 3600.0,
        patient=True,
    )


def _chat(queue: str) -> Policy:
    return Policy(
        queue=queue,
        pool="threads",
        soft_limit_s=0,
        hard_limit_s=0,
        lease_s=CHAT_LEASE_S,
        max_attempts=4,
        backoff_s=0.5,
        backoff_max_s=15.0,
        bundle=1,
        bundle_weight=1,
        credit=1000,
        wait_limit_s=60.0,
        patient=False,
    )


_EXTRACT = _bulk("extract", "prefork", bundle=16, weight=32, credit=256, limits=(1500, 1800))
_EMBED = _bulk("embed", "prefork", bundle=16, weight=128, credit=64, limits=(600, 900))
# Few enough messages at a time to leave the store worker threads for searching.
_INDEX = _bulk("index", "threads", bundle=64, weight=1024, credit=96, limits=(0, 0))
_RETRIEVE = _chat("retrieve")
_ANSWER = _chat("answer")

POLICIES: dict[StepKind, Policy] = {
    StepKind.PLAN: _EXTRACT,
    StepKind.EXTRACT: _EXTRACT,
    StepKind.ASSEMBLE: _EXTRACT,
    StepKind.INDEX_TEXT: _INDEX,
    StepKind.EMBED: _EMBED,
    StepKind.INDEX_VECTORS: _INDEX,
    StepKind.ACTIVATE: _INDEX,
    StepKind.REMOVE: _INDEX,
    StepKind.AUTO_QUERY: _ANSWER,
    StepKind.RETRIEVE: _RETRIEVE,
    StepKind.GENERATE: _ANSWER,
}

RECONCILE = "maintenance.reconcile"
MAINTENANCE_QUEUE = "maintenance"
RECONCILE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """One kind of worker process: its queues, Celery pool, the setting of its size, and its niceness.

    Bulk work is nicer than answering, so that a question in the middle of an ingest gets the processor first.
    """

    name: str
    queues: tuple[str, ...]
    pool: str
    size_setting: str
    nice: int


WORKERS: tuple[WorkerKind, ...] = (
    WorkerKind("extract", ("extract",), "prefork", "extract_processes", 5),
    WorkerKind("embed", ("embed",), "prefork", "embed_processes", 10),
    # Two kinds run the sweep: neither long answers nor a store that hangs can keep it from running.
    WorkerKind("store", ("retrieve", MAINTENANCE_QUEUE, "index"), "threads", "store_threads", 0),
    WorkerKind("answer", ("answer", MAINTENANCE_QUEUE), "threads", "answer_threads", 0),
)
