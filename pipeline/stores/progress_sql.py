"""Part of the ledger: apply what `jobs.advance` says follows from steps that ended, in the caller's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, RowMapping, and_, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.clock import now
from pipeline.jobs import (
    OPEN_STATES,
    Advance,
    Ended,
    NewStep,
    Policy,
    StepKind,
    StepState,
    Subject,
    advance,
    revision_subject,
)
from pipeline.models import FINAL_MESSAGE_STATUSES, FINAL_REVISION_STATES, RevisionState
from pipeline.stores.schema import documents, messages, revisions, steps

_ENDED_NAMES = "id job_id tenant_id subject kind shard state input output error_code error queue weight"
ENDED_COLUMNS = tuple(steps.c[name] for name in _ENDED_NAMES.split())

Origin = tuple[str, str, str]  # job_id, tenant_id, subject


@dataclass(slots=True)
class Advanced:
    inserted: list[RowMapping] = field(default_factory=list)
    final: frozenset[str] = frozenset()

    @property
    def queues(self) -> frozenset[str]:
        return frozenset(row["queue"] for row in self.inserted)


def advance_subjects(
    connection: Connection, policies: Mapping[StepKind, Policy], ended: Sequence[RowMapping]
) -> Advanced:
    """Advance each subject by its ended steps, one after the other, so that a fan-in opens exactly once."""
    result, final = Advanced(), set()
    for subject, rows in groupby(sorted(ended, key=itemgetter("subject")), key=itemgetter("subject")):
        steps_of_subject = list(rows)
        if _advance_subject(connection, policies, steps_of_subject, result):
            final.add(subject)
    result.final = frozenset(final)
    return result


def _advance_subject(
    connection: Connection, policies: Mapping[StepKind, Policy], rows: Sequence[RowMapping], result: Advanced
) -> bool:
    """Returns whether the subject is in its last state now."""
    subject, final = rows[0]["subject"], False
    state, replaces_live = _lock(connection, rows[0])
    counts = _counts(connection, subject)
    # The rows are written already; replay them, so that each sees the others of this commit as still running.
    for row in rows:
        counts[StepKind(row["kind"]), StepState(row["state"])] -= 1
        counts[StepKind(row["kind"]), StepState.RUNNING] += 1
    for row in rows:
        counts[StepKind(row["kind"]), StepState.RUNNING] -= 1
        counts[StepKind(row["kind"]), StepState(row["state"])] += 1
        present = {key: n for key, n in counts.items() if n > 0}
        step = advance(Subject(present, replaces_live), as_ended(row))
        if step.output is not None:
            counted = {"state": StepState.DONE, "output": step.output}
            connection.execute(update(steps).where(steps.c.id == row["id"]).values(counted))
        inserted = insert_steps(connection, policies, (row["job_id"], row["tenant_id"], subject), step.steps)
        for new in inserted:
            counts[StepKind(new["kind"]), StepState.READY] += 1
        result.inserted += inserted
        final |= _apply(connection, row, step, state)
        if step.live and step.state in FINAL_REVISION_STATES:
            result.inserted += _remove_older(connection, policies, row)
    return final


def _lock(connection: Connection, row: RowMapping) -> tuple[str, bool]:
    """Lock the subject's row (a no-op on SQLite, whose writers are alone); returns its state and `replaces_live`."""
    subject = row["subject"]
    if _is_chat(row):
        query = select(messages.c.status).where(messages.c.id == subject).with_for_update()
        return connection.execute(query).scalar_one(), False
    same = documents.c.id == revisions.c.document_id
    query = (
        select(revisions.c.state, revisions.c.number, documents.c.live_revision)
        .select_from(revisions.join(documents, same))
        .where(revisions.c.subject == subject)
        .with_for_update()
    )
    state, number, live = connection.execute(query).one()
    return state, live is not None and live != number


def _is_chat(row: RowMapping) -> bool:
    return str(row["kind"]).startswith("chat.")


def _counts(connection: Connection, subject: str) -> Counter[tuple[StepKind, StepState]]:
    query = (
        select(steps.c.kind, steps.c.state, func.count())
        .where(steps.c.subject == subject)
        .group_by(steps.c.kind, steps.c.state)
    )
    return Counter({(StepKind(kind), StepState(state)): n for kind, state, n in connection.execute(query)})


def as_ended(row: RowMapping) -> Ended:
    return Ended(
        kind=StepKind(row["kind"]),
        shard=row["shard"],
        state=StepState(row["state"]),
        input=row["input"],
        output=row["output"] or {},
        error_code=row["error_code"],
        error=row["error"],
    )


def insert_steps(
    connection: Connection, policies: Mapping[StepKind, Policy], origin: Origin, new: Sequence[NewStep]
) -> list[RowMapping]:
    """Insert steps; one that is there already (a late duplicate of its cause) is left as it is."""
    if not new:
        return []
    job_id, tenant_id, subject = origin
    at = now()
    shared = {"job_id": job_id, "tenant_id": tenant_id, "subject": subject, "created_at": at}
    rows = [
        {
            **shared,
            "kind": step.kind,
            "shard": step.shard,
            "state": StepState.READY,
            "queue": policies[step.kind].queue,
            "weight": step.weight,
            "max_attempts": policies[step.kind].max_attempts,
            "input": step.input,
            "not_before": at + step.delay_s,
        }
        for step in new
    ]
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(steps).on_conflict_do_nothing().returning(*ENDED_COLUMNS)
    return list(connection.execute(statement, rows).mappings())


def _apply(connection: Connection, row: RowMapping, step: Advance, old_state: str) -> bool:
    if step.cancel_rest:
        cancel_open(connection, row["subject"], "another step of the same work failed")
    if _is_chat(row):
        return _apply_to_message(connection, row["subject"], step)
    return _apply_to_revision(connection, row, step, old_state)


def _apply_to_message(connection: Connection, message_id: str, step: Advance) -> bool:
    if step.state is None:
        return False
    open_message = and_(messages.c.id == message_id, messages.c.status.not_in(FINAL_MESSAGE_STATUSES))
    values = {"status": step.state, **step.facts}
    if step.state in FINAL_MESSAGE_STATUSES:
        values["finished_at"] = now()
    return connection.execute(update(messages).where(open_message).values(values)).rowcount == 1


def _apply_to_revision(connection: Connection, row: RowMapping, step: Advance, old_state: str) -> bool:
    subject = row["subject"]
    values: dict[str, Any] = dict(step.facts)
    if step.state is not None and old_state not in (RevisionState.DELETED, RevisionState.CANCELLED):
        times = connection.execute(select(revisions.c.times).where(revisions.c.subject == subject)).scalar_one()
        values |= {"state": step.state, "times": {**times, step.state: now()}}
    if values:
        connection.execute(update(revisions).where(revisions.c.subject == subject).values(values))
    if step.live:
        _make_live(connection, row)
    return step.state in FINAL_REVISION_STATES


def _lease_left_s(connection: Connection, subject: str) -> float:
    """How long a worker may still believe that it owns a step of the subject."""
    query = select(func.max(steps.c.lease_until)).where(steps.c.subject == subject, steps.c.state != StepState.DONE)
    last: float | None = connection.execute(query).scalar_one()
    return max(0.0, (last or 0.0) - now())


def _remove_older(connection: Connection, policies: Mapping[StepKind, Policy], row: RowMapping) -> list[RowMapping]:
    document_id, _, number = row["subject"].rpartition(":")
    return remove_revisions(connection, policies, (row["job_id"], row["tenant_id"]), document_id, int(number))


def _make_live(connection: Connection, row: RowMapping) -> None:
    """Let this revision answer, unless a newer one does already or the document is deleted."""
    document_id, _, number = row["subject"].rpartition(":")
    c = documents.c
    newer = c.live_revision.is_(None) | (c.live_revision < int(number))
    where = and_(c.id == document_id, c.deleted_at.is_(None), newer)
    connection.execute(update(documents).where(where).values(live_revision=int(number)))


def cancel_open(connection: Connection, subject: str, reason: str) -> int:
    """Cancel what is not ended, but for the cleaning, which must come to its end whatever happens to the rest."""
    c = steps.c
    where = and_(c.subject == subject, c.state.in_(OPEN_STATES), c.kind != StepKind.REMOVE)
    values = {"state": StepState.CANCELLED, "error_code": "cancelled", "error": reason, "finished_at": now()}
    return connection.execute(update(steps).where(where).values(values)).rowcount


def remove_revisions(
    connection: Connection, policies: Mapping[StepKind, Policy], job: tuple[str, str], document_id: str, below: int
) -> list[RowMapping]:
    """Insert the steps that clean older revisions out of the stores; `job` is (job_id, tenant_id).

    A step that was cancelled while it ran may still write until its lease ends, so cleaning waits for that.
    """
    c, inserted = revisions.c, []
    where = and_(c.document_id == document_id, c.number < below, c.removed.is_(False))
    for number in connection.execute(select(c.number).where(where)).scalars().all():
        subject = revision_subject(document_id, number)
        cancel_open(connection, subject, "the revision is removed")
        step = NewStep(StepKind.REMOVE, delay_s=_lease_left_s(connection, subject))
        inserted += insert_steps(connection, policies, (*job, subject), [step])
    return inserted
