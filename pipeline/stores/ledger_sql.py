"""The ledger: one row for each step, the truth about what is done and what is not.

No other module sets a step's state. A worker claims steps (compare-and-set, attempt and fence counted *before* the
work), keeps their lease alive, and commits; a commit whose fence is not the row's any more changes nothing. What
follows a step is decided by the pure `jobs.advance` and inserted in the same transaction, under the subject's lock.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, and_, case, func, insert, or_, select, update

from pipeline.clock import now
from pipeline.errors import ConflictError
from pipeline.jobs import Ended, NewStep, Outcome, Policy, Step, StepKind, StepState
from pipeline.stores import progress_sql as progress
from pipeline.stores.database import Database
from pipeline.stores.schema import jobs, steps

#: What a bulk step waits out: the disk or a store is the operator's to mend, and the documents are not to blame.
_NOT_THE_STEPS_FAULT = frozenset({"disk_full", "store_unavailable", "store_locked"})
_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did.

    `continued` are new steps that the committing worker claimed at once; `final` are subjects now in their last
    state; `queues` got new steps to release; `late` counts outcomes whose step another worker owns now.
    """

    continued: tuple[Step, ...] = ()
    final: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    late: int = 0


class SqlLedger:
    def __init__(self, database: Database, policies: Mapping[StepKind, Policy]) -> None:
        self._database = database
        self.policies = policies
        self._lease_s = {kind.value: policy.lease_s for kind, policy in policies.items()}

    def submit(self, connection: Connection, tenant_id: str, subject: str, step: NewStep) -> str:
        """Insert a subject's first step inside the transaction that writes what it describes; returns the job id."""
        job_id = self.new_job(connection, tenant_id, step.kind.partition(".")[0])
        progress.insert_steps(connection, self.policies, (job_id, tenant_id, subject), [step])
        return job_id

    def new_job(self, connection: Connection, tenant_id: str, kind: str) -> str:
        job_id = uuid4().hex
        connection.execute(insert(jobs).values(id=job_id, tenant_id=tenant_id, kind=kind, created_at=now()))
        return job_id

    def claim(self, step_ids: Collection[int], owner: str) -> list[Step]:
        """Own those of the steps that are ready, or whose lease ran out; none means a duplicate delivery."""
        with self._database.write() as connection:
            return self._claim(connection, step_ids, owner)

    def _claim(self, connection: Connection, step_ids: Collection[int], owner: str) -> list[Step]:
        if not step_ids:
            return []
        at, c = now(), steps.c
        ready = and_(c.state == StepState.READY, c.not_before <= at)
        expired = and_(c.state == StepState.RUNNING, c.lease_until < at)
        statement = (
            update(steps)
            .where(c.id.in_(step_ids), or_(ready, expired), c.attempt < c.max_attempts)
            .values(
                state=StepState.RUNNING,
                attempt=c.attempt + 1,
                fence=c.fence + 1,
                lease_owner=owner,
                lease_until=at + case(self._lease_s, value=c.kind, else_=0.0),
                started_at=at,
            )
            .returning(*_STEP_COLUMNS)
        )
        return sorted((_step(row) for row in connection.execute(statement).mappings()), key=lambda step: step.id)

    def heartbeat(self, claimed: Sequence[Step], owner: str) -> set[int]:
        """Renew the leases; returns the ids that are still ours. The others were cancelled or taken over."""
        c, lease_s = steps.c, self.policies[claimed[0].kind].lease_s
        statement = (
            update(steps)
            .where(c.id.in_([step.id for step in claimed]), c.lease_owner == owner, c.state == StepState.RUNNING)
            .values(lease_until=now() + lease_s)
            .returning(c.id)
        )
        with self._database.write() as connection:
            return set(connection.execute(statement).scalars())

    def commit(self, outcomes: Iterable[Outcome], owner: str, stay_on: str | None = None) -> Committed:
        """End the attempts, advance their subjects, and claim what follows on the queue `stay_on`."""
        with self._database.write() as connection:
            ended, late = [], 0
            for outcome in outcomes:
                row = _end(connection, outcome, self.policies[outcome.step.kind])
                late += row is None
                if row is not None and row["state"] != StepState.READY:
                    ended.append(row)
            advanced = progress.advance_subjects(connection, self.policies, ended)
            continued = self._claim(connection, self._follow_up(advanced.inserted, stay_on), owner)
        return Committed(tuple(continued), advanced.final, advanced.queues, late)

    def _follow_up(self, inserted: Sequence[RowMapping], queue: str | None) -> list[int]:
        """The part of the new steps that the worker goes straight on with: one bundle of one kind."""
        own = [row for row in inserted if row["queue"] == queue]
        if not own:
            return []
        kind = own[0]["kind"]
        return take_bundle([row for row in own if row["kind"] == kind], self.policies[StepKind(kind)])

    def end_leases(self, owner: str) -> int:
        """The process that owned these leases is known to be dead: end them now rather than when they run out."""
        with self._database.write() as connection:
            statement = update(steps).where(steps.c.lease_owner == owner, steps.c.state == StepState.RUNNING)
            return connection.execute(statement.values(lease_until=0.0)).rowcount

    def expire(self) -> Committed:
        """Steps whose lease ran out: ready again, or dead when their attempts are used up."""
        at, c = now(), steps.c
        overdue = and_(c.state == StepState.RUNNING, c.lease_until < at)
        with self._database.write() as connection:
            again = update(steps).where(overdue, c.attempt < c.max_attempts)
            connection.execute(again.values(state=StepState.READY, sent_at=None, lease_owner=None))
            lost = (
                update(steps)
                .where(overdue)
                .values(
                    state=StepState.DEAD,
                    error_code="worker_lost",
                    error="Every worker that tried this step died in the middle of it.",
                    finished_at=at,
                )
            )
            rows = connection.execute(lost.returning(*progress.ENDED_COLUMNS)).mappings().all()
            advanced = progress.advance_subjects(connection, self.policies, rows)
        return Committed(final=advanced.final, queues=advanced.queues)

    def end_overdue(self, kind: StepKind, older_than_s: float, code: str, reason: str) -> Committed:
        """Give up open steps of a kind that were created too long ago, and let their subjects go on without them."""
        at, c = now(), steps.c
        open_states = c.state.in_([StepState.READY, StepState.RUNNING])
        statement = (
            update(steps)
            .where(open_states, c.queue == self.policies[kind].queue, c.kind == kind, c.created_at < at - older_than_s)
            .values(
                state=StepState.FAILED,
                error_code=code,
                error=reason + func.coalesce(" Its last error: " + c.error, ""),
                finished_at=at,
            )
            .returning(*progress.ENDED_COLUMNS)
        )
        with self._database.write() as connection:
            rows = connection.execute(statement).mappings().all()
            advanced = progress.advance_subjects(connection, self.policies, rows)
        return Committed(final=advanced.final, queues=advanced.queues)

    def restart_clocks(self, kinds: Collection[StepKind]) -> None:
        """Deadlines of open steps count from now: nobody worked while the stack was down."""
        c = steps.c
        open_steps = and_(c.state.in_([StepState.READY, StepState.RUNNING]), c.kind.in_(kinds))
        with self._database.write() as connection:
            connection.execute(update(steps).where(open_steps).values(created_at=now()))

    def reopen(self, kind: StepKind, after_s: float) -> None:
        """Try steps of a kind again that ended without success a while ago."""
        c = steps.c
        over = c.state.in_([StepState.FAILED, StepState.DEAD, StepState.CANCELLED])
        old = and_(c.queue == self.policies[kind].queue, over, c.kind == kind, c.finished_at < now() - after_s)
        with self._database.write() as connection:
            connection.execute(update(steps).where(old).values(state=StepState.READY, **_FRESH))

    def ended(self, subject: str, kind: StepKind) -> list[Ended]:
        """A subject's steps of one kind that are in their last state: what the steps before wrote."""
        c = steps.c
        query = select(*progress.ENDED_COLUMNS).where(
            c.subject == subject, c.kind == kind, c.state.not_in([StepState.READY, StepState.RUNNING])
        )
        with self._database.read() as connection:
            return [progress.as_ended(row) for row in connection.execute(query.order_by(c.id)).mappings()]

    def retry(self, connection: Connection, subject: str) -> None:
        """Start the steps that failed, died or were cancelled again, with all their attempts."""
        again = [StepState.FAILED, StepState.DEAD, StepState.CANCELLED]
        statement = update(steps).where(steps.c.subject == subject, steps.c.state.in_(again))
        if connection.execute(statement.values(state=StepState.READY, **_FRESH)).rowcount == 0:
            raise ConflictError("Nothing of it has failed, so there is nothing to retry.", code="nothing_to_retry")


def take_bundle(rows: Sequence[RowMapping], policy: Policy) -> list[int]:
    """The ids of the first steps that fit one message: at least one, by count and by summed weight."""
    taken: list[int] = []
    weight = 0
    for row in rows[: policy.bundle]:
        weight += row["weight"]
        if taken and weight > policy.bundle_weight:
            break
        taken.append(row["id"])
    return taken


def _end(connection: Connection, outcome: Outcome, policy: Policy) -> RowMapping | None:
    """Write how one attempt ended, if the fence still holds. None when another worker owns the step now."""
    step, at, c = outcome.step, now(), steps.c
    values: dict[str, Any] = {
        "state": outcome.state,
        "work_s": outcome.work_s,
        "peak_rss_bytes": outcome.peak_rss_bytes,
        "error_code": outcome.error_code,
        "error": outcome.error,
    }
    if outcome.state is StepState.READY:
        values |= _retry(outcome, policy, at)
    else:
        values |= {"output": outcome.output, "finished_at": at}
    owned = and_(c.id == step.id, c.fence == step.fence, c.state == StepState.RUNNING)
    statement = update(steps).where(owned).values(values).returning(*progress.ENDED_COLUMNS)
    return connection.execute(statement).mappings().first()


def _retry(outcome: Outcome, policy: Policy, at: float) -> dict[str, Any]:
    step, asked_s = outcome.step, outcome.retry_after_s or 0.0
    again = {"sent_at": None, "lease_owner": None}
    if policy.patient and outcome.error_code in _NOT_THE_STEPS_FAULT:
        return {**again, "not_before": at + max(asked_s, _PATIENCE_S), "attempt": step.attempt - 1}
    if asked_s > policy.wait_limit_s:
        reason = f"{outcome.error} It asks to wait {asked_s:.0f} s, longer than anyone would."
        return {"state": StepState.DEAD, "finished_at": at, "error": reason}
    if step.attempt >= step.max_attempts:
        return {"state": StepState.DEAD, "finished_at": at}
    return {**again, "not_before": at + (asked_s or backoff_s(step.attempt, policy))}


def backoff_s(attempt: int, policy: Policy) -> float:
    """Exponential with full jitter on its upper half, so that retries of many steps spread out."""
    delay = min(policy.backoff_s * 2.0 ** (attempt - 1), policy.backoff_max_s)
    return delay * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, guards nothing


_FRESH = {"attempt": 0, "not_before": 0.0, "sent_at": None, "error_code": None, "error": None}
_STEP_NAMES = "id job_id tenant_id subject kind shard attempt max_attempts fence input weight"
_STEP_COLUMNS = tuple(steps.c[name] for name in _STEP_NAMES.split())


def _step(row: RowMapping) -> Step:
    return Step(**{**row, "kind": StepKind(row["kind"])})
