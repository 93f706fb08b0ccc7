"""The ledger's promises, on every database that it runs on."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from sqlalchemy import select, update

from pipeline.clock import now
from pipeline.errors import ConflictError
from pipeline.jobs import NewStep, Outcome, StepKind, StepState, revision_subject
from pipeline.models import RevisionState, Upload
from pipeline.stores.catalog_sql import SqlDocuments, SqlKnowledgeBases, register
from pipeline.stores.database import Database
from pipeline.stores.ledger_sql import SqlLedger
from pipeline.stores.progress_sql import cancel_open, remove_revisions
from pipeline.stores.relay_sql import SqlRelay
from pipeline.stores.schema import steps
from pipeline.stores.watch_sql import SqlWatch
from workers.policies import POLICIES

TENANT = "t1"


class Bench:
    """A ledger with a document in it, and shorthand for what a worker does."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.ledger = SqlLedger(database, POLICIES)
        self.relay = SqlRelay(database, POLICIES)
        self.documents = SqlDocuments(database)
        self.kb = SqlKnowledgeBases(database).create(TENANT, "kb")

    def submit(self, key: str = "a.txt", blob: str = "0" * 64, tenant: str = TENANT) -> str:
        upload = Upload(key, f"area-{key}", blob, 10)
        with self.database.write() as connection:
            document_id, number, _ = register(connection, tenant, self.kb.id, upload)
            subject = revision_subject(document_id, number)
            self.ledger.submit(connection, tenant, subject, NewStep(StepKind.PLAN))
        return subject

    def claim_next(self, owner: str = "w"):
        ids = [step_id for bundle in self.relay.release() for step_id in bundle.step_ids]
        return self.ledger.claim(ids, owner)

    def state(self, subject: str) -> RevisionState:
        document_id, _, number = subject.rpartition(":")
        return self.documents.revision(document_id, int(number)).state

    def live(self, subject: str) -> int | None:
        document_id = subject.rpartition(":")[0]
        return self.documents.live_revisions([document_id]).get(document_id)


def outcome(step, **output):
    return Outcome(step, StepState.DONE, output)


ASSEMBLED = {
    "title": "T",
    "text_blob": "t",
    "outline_blob": "o",
    "chunk_count": 3,
    "char_count": 9,
    "missing_pages": {},
}

OUTPUTS = {
    StepKind.PLAN: {"media_type": "text/plain", "page_count": 20, "title": "T", "shards": [[1, 16], [17, 20]]},
    StepKind.EXTRACT: {"shard": "s"},
    StepKind.ASSEMBLE: {**ASSEMBLED, "batches": [["b0", 2], ["b1", 1]]},
    StepKind.INDEX_TEXT: {"chunks": 1},
    StepKind.EMBED: {"vectors": "v", "chunks": 1},
    StepKind.INDEX_VECTORS: {"chunks": 1},
    StepKind.ACTIVATE: {},
    StepKind.REMOVE: {},
}


class LedgerContract:
    @pytest.fixture
    def bench(self, database: Database) -> Bench:
        return Bench(database)

    def run_all(self, bench: Bench) -> Counter[StepKind]:
        """Work off everything, one step a commit, and count the steps of each kind."""
        done: Counter[StepKind] = Counter()
        while claimed := bench.claim_next():
            for step in claimed:
                done[step.kind] += 1
                bench.ledger.commit([outcome(step, **OUTPUTS[step.kind])], "w")
        return done

    def test_a_document_runs_through_every_step_once(self, bench: Bench) -> None:
        subject = bench.submit()
        done = self.run_all(bench)
        assert done == {
            StepKind.PLAN: 1,
            StepKind.EXTRACT: 2,
            StepKind.ASSEMBLE: 1,
            StepKind.INDEX_TEXT: 2,
            StepKind.EMBED: 2,
            StepKind.INDEX_VECTORS: 2,
            StepKind.ACTIVATE: 1,
        }
        assert bench.state(subject) is RevisionState.READY
        assert bench.live(subject) == 1

    def test_a_bundle_of_all_shards_opens_the_next_stage_once(self, bench: Bench) -> None:
        bench.submit()
        (plan,) = bench.claim_next()
        bench.ledger.commit([outcome(plan, **OUTPUTS[StepKind.PLAN])], "w")
        shards = bench.claim_next()
        assert [step.kind for step in shards] == [StepKind.EXTRACT] * 2
        committed = bench.ledger.commit([outcome(step, shard="s") for step in shards], "w", stay_on="extract")
        assert [step.kind for step in committed.continued] == [StepKind.ASSEMBLE]

    def test_the_worker_goes_straight_on_with_its_own_kind_of_work(self, bench: Bench) -> None:
        bench.submit()
        (plan,) = bench.claim_next()
        committed = bench.ledger.commit([outcome(plan, **OUTPUTS[StepKind.PLAN])], "w", stay_on="extract")
        assert [step.shard for step in committed.continued] == ["1-16", "17-20"]
        assert bench.claim_next() == []

    def test_a_duplicate_delivery_claims_nothing(self, bench: Bench) -> None:
        bench.submit()
        ids = [step_id for bundle in bench.relay.release() for step_id in bundle.step_ids]
        assert len(bench.ledger.claim(ids, "one")) == 1
        assert bench.ledger.claim(ids, "two") == []

    def test_a_late_commit_changes_nothing(self, bench: Bench) -> None:
        bench.submit()
        (late,) = bench.claim_next("slow")
        bench.ledger.end_leases("slow")
        bench.ledger.expire()
        (again,) = bench.claim_next("other")
        assert (again.id, again.fence, again.attempt) == (late.id, late.fence + 1, 2)
        assert bench.ledger.commit([outcome(late, **OUTPUTS[StepKind.PLAN])], "slow").late == 1
        committed = bench.ledger.commit([outcome(again, **OUTPUTS[StepKind.PLAN])], "other")
        assert committed.late == 0

    def test_a_commit_sent_twice_changes_nothing(self, bench: Bench) -> None:
        bench.submit()
        (plan,) = bench.claim_next()
        done = outcome(plan, **OUTPUTS[StepKind.PLAN])
        assert bench.ledger.commit([done], "w").late == 0
        assert bench.ledger.commit([done], "w").late == 1
        assert len(bench.claim_next()) == 2

    def test_a_transient_failure_waits_and_then_runs_again(self, bench: Bench) -> None:
        bench.submit()
        (plan,) = bench.claim_next()
        retry = Outcome(plan, StepState.READY, error_code="x", error="later", retry_after_s=3600.0)
        bench.ledger.commit([retry], "w")
        assert bench.claim_next() == []
        waiting = SqlWatch(bench.database, POLICIES).why(plan.subject)
        assert waiting is not None
        assert waiting.cause == "retry"
        assert "later" in waiting.sentence

    def test_attempts_used_up_end_as_a_dead_letter_with_its_reason(self, bench: Bench) -> None:
        subject = bench.submit()
        for _ in range(POLICIES[StepKind.PLAN].max_attempts):
            (plan,) = bench.claim_next()
            retry = Outcome(plan, StepState.READY, error_code="x", error="again", retry_after_s=1e-9)
            committed = bench.ledger.commit([retry], "w")
        assert committed.final == {subject}
        assert bench.state(subject) is RevisionState.FAILED
        assert bench.claim_next() == []

    def test_a_worker_that_dies_every_time_ends_as_a_dead_letter(self, bench: Bench) -> None:
        subject = bench.submit()
        for _ in range(POLICIES[StepKind.PLAN].max_attempts):
            assert len(bench.claim_next("w")) == 1
            bench.ledger.end_leases("w")
            committed = bench.ledger.expire()
        assert committed.final == {subject}
        document = bench.documents.get(TENANT, subject.rpartition(":")[0])
        assert (document.state, document.error_code) == (RevisionState.FAILED, "worker_lost")

    def test_a_shard_that_kills_every_worker_is_halved(self, bench: Bench) -> None:
        bench.submit()
        (plan,) = bench.claim_next()
        bench.ledger.commit([outcome(plan, **OUTPUTS[StepKind.PLAN])], "w")
        for _ in range(POLICIES[StepKind.EXTRACT].max_attempts):
            bench.claim_next("w")
            bench.ledger.end_leases("w")
            bench.ledger.expire()
        assert sorted(step.shard for step in bench.claim_next()) == ["1-8", "17-18", "19-20", "9-16"]

    def test_a_permanent_failure_fails_the_document_and_cancels_the_rest(self, bench: Bench) -> None:
        subject = bench.submit()
        (plan,) = bench.claim_next()
        bench.ledger.commit([outcome(plan, **OUTPUTS[StepKind.PLAN])], "w")
        one, two = bench.claim_next()
        failed = Outcome(one, StepState.FAILED, error_code="broken_pdf", error="it is broken")
        assert bench.ledger.commit([failed], "w").final == {subject}
        assert bench.ledger.heartbeat([two], "w") == set()
        assert bench.ledger.commit([outcome(two, shard="s")], "w").late == 1

    def test_no_chunks_is_a_state_of_its_own(self, bench: Bench) -> None:
        subject = bench.submit()
        (plan,) = bench.claim_next()
        bench.ledger.commit([outcome(plan, **{**OUTPUTS[StepKind.PLAN], "shards": [[1, 1]]})], "w")
        (extract,) = bench.claim_next()
        bench.ledger.commit([outcome(extract, shard="s")], "w")
        (assemble,) = bench.claim_next()
        bench.ledger.commit([outcome(assemble, **ASSEMBLED, batches=[])], "w")
        assert bench.state(subject) is RevisionState.EMPTY

    def test_the_old_revision_answers_until_the_new_one_is_ready(self, bench: Bench) -> None:
        first = bench.submit()
        self.run_all(bench)
        second = bench.submit(blob="1" * 64)
        seen = []
        while claimed := bench.claim_next():
            for step in claimed:
                seen.append((step.kind, bench.live(first)))
                bench.ledger.commit([outcome(step, **OUTPUTS[step.kind])], "w")
        before = [live for kind, live in seen if kind is not StepKind.REMOVE]
        assert set(before) == {1}
        assert [live for kind, live in seen if kind is StepKind.REMOVE] == [2]
        assert bench.state(second) is RevisionState.READY

    def test_the_first_revision_answers_once_its_text_is_indexed(self, bench: Bench) -> None:
        subject = bench.submit()
        held = []
        while claimed := bench.claim_next():
            held += [step for step in claimed if step.kind is StepKind.EMBED]
            for step in claimed:
                if step.kind is not StepKind.EMBED:
                    bench.ledger.commit([outcome(step, **OUTPUTS[step.kind])], "w")
        assert len(held) == 2
        assert bench.state(subject) is RevisionState.SEARCHABLE
        assert bench.live(subject) == 1

    def test_a_delete_does_not_stop_the_cleaning_of_an_older_revision(self, bench: Bench) -> None:
        subject = bench.submit()
        self.run_all(bench)
        document_id = subject.rpartition(":")[0]
        with bench.database.write() as connection:
            job = (bench.ledger.new_job(connection, TENANT, "ingest"), TENANT)
            for _ in range(2):
                remove_revisions(connection, POLICIES, job, document_id, below=2)
        (step,) = bench.claim_next()
        assert (step.kind, step.subject) == (StepKind.REMOVE, subject)

    def test_cleaning_that_failed_is_tried_again(self, bench: Bench) -> None:
        subject = bench.submit()
        self.run_all(bench)
        with bench.database.write() as connection:
            job = (bench.ledger.new_job(connection, TENANT, "ingest"), TENANT)
            remove_revisions(connection, POLICIES, job, subject.rpartition(":")[0], below=2)
        (step,) = bench.claim_next()
        bench.ledger.commit([Outcome(step, StepState.FAILED, error_code="x", error="x")], "w")
        assert bench.claim_next() == []
        bench.ledger.reopen(StepKind.REMOVE, after_s=-1)
        assert [again.id for again in bench.claim_next()] == [step.id]

    def test_cleaning_waits_until_no_worker_can_think_that_it_owns_a_step(self, bench: Bench) -> None:
        subject = bench.submit()
        (plan,) = bench.claim_next()
        with bench.database.write() as connection:
            cancel_open(connection, subject, "superseded")
        assert plan.subject == subject
        with bench.database.write() as connection:
            job = (bench.ledger.new_job(connection, TENANT, "ingest"), TENANT)
            remove_revisions(connection, POLICIES, job, subject.rpartition(":")[0], below=2)
        assert bench.claim_next() == []
        with bench.database.read() as connection:
            not_before = connection.execute(
                select(steps.c.not_before).where(steps.c.kind == StepKind.REMOVE)
            ).scalar_one()
        assert now() + POLICIES[StepKind.PLAN].lease_s - 2 < not_before <= now() + POLICIES[StepKind.PLAN].lease_s

    def test_a_full_disk_is_waited_out_whatever_the_attempts(self, bench: Bench) -> None:
        bench.submit()
        for _ in range(POLICIES[StepKind.PLAN].max_attempts + 2):
            (plan,) = bench.claim_next()
            full = Outcome(plan, StepState.READY, error_code="disk_full", error="full")
            assert bench.ledger.commit([full], "w").final == frozenset()
            with bench.database.write() as connection:
                connection.execute(update(steps).values(not_before=0.0))
        assert plan.attempt == 1

    def test_a_wait_longer_than_anyone_would_wait_ends_the_step_with_its_reason(self, bench: Bench) -> None:
        subject = bench.submit()
        (plan,) = bench.claim_next()
        retry = Outcome(plan, StepState.READY, error_code="limited", error="Slow down.", retry_after_s=1e9)
        assert bench.ledger.commit([retry], "w").final == {subject}
        document = bench.documents.get(TENANT, subject.rpartition(":")[0])
        assert "Slow down. It asks to wait" in (document.error or "")

    def test_work_of_a_tenant_whose_name_sorts_first_is_released(self, bench: Bench) -> None:
        bench.submit(tenant="")
        assert len(bench.claim_next()) == 1

    def test_a_retry_starts_what_failed_and_what_was_cancelled_with_it(self, bench: Bench) -> None:
        subject = bench.submit()
        (plan,) = bench.claim_next()
        bench.ledger.commit([outcome(plan, **OUTPUTS[StepKind.PLAN])], "w")
        one, _two = bench.claim_next()
        bench.ledger.commit([Outcome(one, StepState.FAILED, error_code="x", error="x")], "w")
        with bench.database.write() as connection:
            bench.ledger.retry(connection, subject)
        assert self.run_all(bench)[StepKind.EXTRACT] == 2
        assert bench.state(subject) is RevisionState.READY
        with bench.database.write() as connection, pytest.raises(ConflictError):
            bench.ledger.retry(connection, subject)

    def test_same_bytes_are_unchanged(self, bench: Bench) -> None:
        bench.submit()
        with bench.database.write() as connection:
            again = register(connection, TENANT, bench.kb.id, Upload("a.txt", "other", "0" * 64, 10))
        assert again[1:] == (1, False)

    def test_eight_claimers_at_once_never_own_the_same_step(self, bench: Bench) -> None:
        for n in range(40):
            bench.submit(f"{n}.txt")
        ids = [step_id for bundle in bench.relay.release() for step_id in bundle.step_ids]
        owners: list[tuple[int, str]] = []

        def claim(owner: str) -> None:
            for start in range(0, len(ids), 5):
                owners.extend((step.id, owner) for step in bench.ledger.claim(ids[start : start + 5], owner))

        threads = [threading.Thread(target=claim, args=(f"w{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(step_id for step_id, _ in owners) == sorted(ids)

    def test_credit_bounds_what_is_sent(self, bench: Bench) -> None:
        credit = POLICIES[StepKind.PLAN].credit
        for n in range(credit + 20):
            bench.submit(f"{n}.txt")
        sent = sum(len(bundle.step_ids) for bundle in bench.relay.release())
        assert credit <= sent < credit + POLICIES[StepKind.PLAN].bundle
        assert bench.relay.release() == []

    def test_tenants_take_turns(self, bench: Bench) -> None:
        for n in range(100):
            bench.submit(f"{n}.txt")
        other = bench.submit("other.txt", tenant="t2")
        bundles = bench.relay.release()
        claimed = bench.ledger.claim(bundles[1].step_ids, "w")
        assert [step.subject for step in claimed] == [other]

    def test_a_message_that_the_broker_refused_is_released_again(self, bench: Bench) -> None:
        bench.submit()
        bundles = bench.relay.release()
        assert bench.relay.release() == []
        bench.relay.unsend(bundles)
        assert bench.relay.release() == bundles

    def test_one_owner_at_a_time_holds_a_duty(self, bench: Bench) -> None:
        watch = SqlWatch(bench.database, POLICIES)
        assert watch.take_lease("reconcile", "a", 60)
        assert not watch.take_lease("reconcile", "b", 60)
        assert watch.take_lease("reconcile", "a", -1)
        assert watch.take_lease("reconcile", "b", 60)

    def test_a_queue_without_a_consumer_is_named(self, bench: Bench) -> None:
        subject = bench.submit()
        watch = SqlWatch(bench.database, POLICIES)
        waiting = watch.why(subject)
        assert waiting is not None
        assert waiting.cause == "no_consumer"
        watch.seen("w", ["extract"], 1)
        assert watch.consumers()["extract"] == 1
        waiting = watch.why(subject)
        assert waiting is not None
        assert waiting.cause == "queued"


class TestSqliteLedger(LedgerContract):
    pass
