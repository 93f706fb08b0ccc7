"""Part of the ledger: which ready steps are sent to the broker next, and which sent ones got lost on the way.

A queue's credit bounds the steps that are sent or running, so a bulk job waits here, in the ledger, and not in the
broker. Tenants take turns, one bundle each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, func, or_, select, update

from pipeline.clock import now
from pipeline.jobs import Policy, StepKind, StepState
from pipeline.stores.database import Database
from pipeline.stores.ledger_sql import take_bundle
from pipeline.stores.schema import steps

_C = steps.c
#: A handful of steps is cut into about this many messages.
_SPREAD = 4


@dataclass(frozen=True, slots=True)
class Bundle:
    """One message: steps of one kind."""

    queue: str
    kind: StepKind
    step_ids: tuple[int, ...]


class SqlRelay:
    def __init__(self, database: Database, policies: Mapping[StepKind, Policy]) -> None:
        self._database = database
        self._policies = policies
        self._credit = {policy.queue: policy.credit for policy in policies.values()}

    def release(self, queues: Collection[str] | None = None) -> list[Bundle]:
        """Mark the next steps as sent and return them in bundles; whoever can't send them calls `unsend`."""
        wanted = [queue for queue in self._credit if queues is None or queue in queues]
        with self._database.read() as connection:
            waiting = [queue for queue in wanted if _has_unsent(connection, queue)]
        if not waiting:
            return []
        with self._database.write() as connection:
            return [bundle for queue in waiting for bundle in self._release_queue(connection, queue)]

    def _release_queue(self, connection: Connection, queue: str) -> list[Bundle]:
        room = self._credit[queue] - _in_flight(connection, queue)
        if room <= 0:
            return []
        by_tenant = [_next_steps(connection, queue, tenant, room) for tenant in _tenants(connection, queue)]
        bundles = [self._cut(rows) for rows in by_tenant]
        chosen: list[Bundle] = []
        for bundle in take_turns(bundles):
            if chosen and room < len(bundle.step_ids):
                break
            chosen.append(bundle)
            room -= len(bundle.step_ids)
        ids = [step_id for bundle in chosen for step_id in bundle.step_ids]
        connection.execute(update(steps).where(_C.id.in_(ids)).values(sent_at=now()))
        return chosen

    def _cut(self, rows: Sequence[RowMapping]) -> list[Bundle]:
        """Full bundles when there is much to do, smaller ones when there is little, so that every process gets some."""
        bundles = []
        for kind, group in groupby(sorted(rows, key=itemgetter("kind")), key=itemgetter("kind")):
            rest = list(group)
            share = math.ceil(len(rest) / _SPREAD)
            while rest:
                ids = take_bundle(rest[:share], self._policies[StepKind(kind)])
                bundles.append(Bundle(rest[0]["queue"], StepKind(kind), tuple(ids)))
                rest = rest[len(ids) :]
        return sorted(bundles, key=lambda bundle: bundle.step_ids[0])

    def unsend(self, bundles: Sequence[Bundle]) -> None:
        """The broker did not take them: they wait for the next release."""
        ids = [step_id for bundle in bundles for step_id in bundle.step_ids]
        with self._database.write() as connection:
            statement = update(steps).where(_C.id.in_(ids), _C.state == StepState.READY)
            connection.execute(statement.values(sent_at=None))

    def unclaimed(self, sent_before: float) -> dict[str, set[int]]:
        """By queue, the steps that were sent before that time and that no worker has claimed."""
        query = select(_C.queue, _C.id).where(_C.queue.in_(self._credit), _C.state == StepState.READY)
        with self._database.read() as connection:
            rows = connection.execute(query.where(_C.sent_at < sent_before)).all()
        found: dict[str, set[int]] = {}
        for queue, step_id in rows:
            found.setdefault(queue, set()).add(step_id)
        return found

    def resend(self, step_ids: Collection[int]) -> None:
        with self._database.write() as connection:
            statement = update(steps).where(_C.id.in_(step_ids), _C.state == StepState.READY)
            connection.execute(statement.values(sent_at=None))


def take_turns(queues: Sequence[Sequence[Bundle]]) -> Iterator[Bundle]:
    """Round robin: the first of each, then the second of each, and so on."""
    for turn in range(max((len(queue) for queue in queues), default=0)):
        for queue in queues:
            if turn < len(queue):
                yield queue[turn]


def _unsent(queue: str) -> ColumnElement[bool]:
    return and_(_C.queue == queue, _C.state == StepState.READY, _C.sent_at.is_(None), _C.not_before <= now())


def _has_unsent(connection: Connection, queue: str) -> bool:
    return connection.execute(select(_C.id).where(_unsent(queue)).limit(1)).first() is not None


def _in_flight(connection: Connection, queue: str) -> int:
    sent = and_(_C.state == StepState.READY, _C.sent_at.is_not(None))
    running = _C.state == StepState.RUNNING
    query = select(func.count()).where(_C.queue == queue, or_(sent, running))
    return connection.execute(query).scalar_one()


def _tenants(connection: Connection, queue: str) -> list[str]:
    """Tenants with ready steps in the queue, one index seek each rather than a scan of a million rows."""
    found: list[str] = []
    while True:
        query = select(func.min(_C.tenant_id)).where(_C.queue == queue, _C.state == StepState.READY)
        rest = query.where(_C.tenant_id > found[-1]) if found else query
        tenant = connection.execute(rest).scalar_one()
        if tenant is None:
            return found
        found.append(tenant)


def _next_steps(connection: Connection, queue: str, tenant: str, limit: int) -> Sequence[RowMapping]:
    query = (
        select(_C.id, _C.kind, _C.queue, _C.weight)
        .where(_unsent(queue), _C.tenant_id == tenant)
        .order_by(_C.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(query).mappings().all()
