"""What operators and callers ask of the ledger: is anyone working, how much waits, and why does this wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping, and_, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.clock import now
from pipeline.jobs import OPEN_STATES, Policy, StepKind, StepState
from pipeline.models import QueueStatus, Waiting
from pipeline.stores.database import Database
from pipeline.stores.schema import leases, messages, steps, workers

#: A worker that was not seen for so long is taken for dead.
WORKER_SILENT_S = 15.0

_C = steps.c


class SqlWatch:
    def __init__(self, database: Database, policies: Mapping[StepKind, Policy]) -> None:
        self._database = database
        self._queues = sorted({policy.queue for policy in policies.values()})

    def seen(self, name: str, queues: Sequence[str], pid: int) -> None:
        """A worker says that it is alive and which queues it consumes."""
        row = {"name": name, "queues": list(queues), "pid": pid, "seen_at": now()}
        with self._database.write() as connection:
            connection.execute(delete(workers).where(workers.c.name == name))
            connection.execute(workers.insert().values(row))

    def forget(self, name: str | None = None) -> None:
        """A worker has stopped; without a name all have, because the whole stack starts anew."""
        with self._database.write() as connection:
            statement = delete(workers)
            connection.execute(statement if name is None else statement.where(workers.c.name == name))

    def take_lease(self, name: str, owner: str, seconds: float) -> bool:
        """Become the one owner of a named duty for some seconds; False while another one is."""
        at = now()
        with self._database.write() as connection:
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            fresh = dialect.insert(leases).values(name=name, owner="", until=0.0).on_conflict_do_nothing()
            connection.execute(fresh)
            mine = and_(leases.c.name == name, (leases.c.until < at) | (leases.c.owner == owner))
            taken = connection.execute(update(leases).where(mine).values(owner=owner, until=at + seconds))
            return taken.rowcount == 1

    def consumers(self) -> dict[str, int]:
        """How many live workers consume each queue."""
        query = select(workers.c.queues).where(workers.c.seen_at > now() - WORKER_SILENT_S)
        counts = dict.fromkeys(self._queues, 0)
        with self._database.read() as connection:
            for queues in connection.execute(query).scalars():
                for queue in queues:
                    counts[queue] = counts.get(queue, 0) + 1
        return counts

    def queues(self, tenant_id: str) -> list[QueueStatus]:
        query = (
            select(_C.queue, _C.state, func.count())
            .where(_C.tenant_id == tenant_id, _C.state.in_([*OPEN_STATES, StepState.DEAD]))
            .group_by(_C.queue, _C.state)
        )
        with self._database.read() as connection:
            found = {(queue, state): n for queue, state, n in connection.execute(query)}
        consumers = self.consumers()
        return [
            QueueStatus(
                queue=queue,
                ready=found.get((queue, StepState.READY), 0),
                running=found.get((queue, StepState.RUNNING), 0),
                dead=found.get((queue, StepState.DEAD), 0),
                workers=consumers.get(queue, 0),
            )
            for queue in self._queues
        ]

    def queued(self, tenant_id: str, at_most: int) -> int:
        """The tenant's open steps, counted no further than `at_most`."""
        some = select(_C.id).where(_C.tenant_id == tenant_id, _C.queue.in_(self._queues), _C.state.in_(OPEN_STATES))
        with self._database.read() as connection:
            return connection.execute(select(func.count()).select_from(some.limit(at_most).subquery())).scalar_one()

    def unpublished(self, older_than_s: float) -> list[str]:
        """Final messages whose terminal event nobody is known to have written."""
        c = messages.c
        query = select(c.id).where(c.published.is_(False), c.finished_at < now() - older_than_s).limit(100)
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    def set_published(self, message_id: str) -> None:
        with self._database.write() as connection:
            connection.execute(update(messages).where(messages.c.id == message_id).values(published=True))

    def why(self, subject: str) -> Waiting | None:
        """Why a subject is not done yet; None when it has no open step."""
        query = select(steps).where(_C.subject == subject, _C.state.in_(OPEN_STATES)).order_by(_C.id)
        with self._database.read() as connection:
            rows = connection.execute(query).mappings().all()
        if not rows:
            return None
        running = [row for row in rows if row["state"] == StepState.RUNNING]
        return _working(running, len(rows)) if running else self._waiting(rows[0])

    def _waiting(self, row: RowMapping) -> Waiting:
        queue, delay_s = row["queue"], row["not_before"] - now()
        if delay_s > 0 and row["attempt"]:
            reason = f"{row['error_code']}: {row['error']}"
            sentence = f"Attempt {row['attempt'] + 1} of {row['max_attempts']} in {delay_s:.0f} s ({reason})."
            return Waiting(sentence, "retry", eta_s=round(delay_s, 1))
        if not self.consumers().get(queue):
            return Waiting(f"No worker consumes the queue {queue!r}: start one with `sourcemill up`.", "no_consumer")
        ahead, eta_s = self._ahead(row)
        sentence = f"{row['kind']} waits in the queue {queue!r} behind {ahead} steps."
        return Waiting(sentence, "queued", position=ahead + 1, eta_s=eta_s)

    def _ahead(self, row: RowMapping) -> tuple[int, float | None]:
        """(steps before this one in its queue, seconds at the rate of the last minute)."""
        before = select(func.count()).where(_C.queue == row["queue"], _C.state.in_(OPEN_STATES), _C.id < row["id"])
        recent = select(func.count()).where(_C.queue == row["queue"], _C.finished_at > now() - 60.0)
        with self._database.read() as connection:
            ahead = connection.execute(before).scalar_one()
            done = connection.execute(recent).scalar_one()
        return ahead, round(60.0 * (ahead + 1) / done, 1) if done else None


def _working(running: Sequence[Any], open_steps: int) -> Waiting:
    row = running[0]
    seconds = now() - (row["started_at"] or now())
    sentence = f"{row['kind']} runs since {seconds:.0f} s, attempt {row['attempt']} of {row['max_attempts']}"
    return Waiting(f"{sentence}; {open_steps - len(running)} steps wait behind it.", "running", position=0)
