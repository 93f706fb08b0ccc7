"""`advance`, run as the whole life of a document in any order of ends."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from pipeline.jobs import Ended, NewStep, StepKind, StepState, Subject, advance
from pipeline.models import RevisionState


def _output(step: NewStep, shards: int, batches: int) -> dict[str, object]:
    assembled = {
        "title": "T",
        "text_blob": "t",
        "outline_blob": "o",
        "chunk_count": batches,
        "char_count": 1,
        "missing_pages": {},
        "batches": [(f"b{n}", 1) for n in range(batches)],
    }
    plan = {
        "media_type": "text/plain",
        "page_count": shards,
        "title": None,
        "shards": [(n, n) for n in range(1, shards + 1)],
    }
    outputs = {StepKind.PLAN: plan, StepKind.ASSEMBLE: assembled, StepKind.EMBED: {"vectors": "v", "chunks": 1}}
    return outputs.get(step.kind, {"shard": "s"})


@given(st.integers(1, 6), st.integers(0, 5), st.booleans(), st.randoms(use_true_random=False))
def test_every_order_of_ends_runs_each_step_once_and_ends_ready(shards, batches, replaces_live, random) -> None:
    counts: Counter[tuple[StepKind, StepState]] = Counter({(StepKind.PLAN, StepState.RUNNING): 1})
    running, states, seen = [NewStep(StepKind.PLAN)], [], Counter()
    while running:
        step = running.pop(random.randrange(len(running)))
        seen[step.kind, step.shard] += 1
        counts[step.kind, StepState.RUNNING] -= 1
        counts[step.kind, StepState.DONE] += 1
        ended = Ended(step.kind, step.shard, StepState.DONE, step.input, _output(step, shards, batches))
        result = advance(Subject({k: n for k, n in counts.items() if n}, replaces_live), ended)
        running += result.steps
        counts.update({(new.kind, StepState.RUNNING): 0 for new in result.steps})
        for new in result.steps:
            counts[new.kind, StepState.RUNNING] += 1
        if result.state:
            states.append((result.state, result.live))
    assert set(seen.values()) == {1}
    assert states[-1] == ((RevisionState.READY if batches else RevisionState.EMPTY), True)
    assert sum(live for _, live in states[:-1]) <= (0 if replaces_live else 1)
    assert sum(n for (_, state), n in counts.items() if state is StepState.RUNNING) == 0


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_shard_that_kills_its_parser_is_halved_down_to_the_bad_page(pages, bad) -> None:
    bad = 1 + bad % pages
    todo, read, given_up = [NewStep(StepKind.EXTRACT, f"1-{pages}", {"first": 1, "last": pages})], set(), set()
    while todo:
        step = todo.pop()
        first, last = step.input["first"], step.input["last"]
        if not first <= bad <= last:
            read.update(range(first, last + 1))
        elif first == last:
            given_up.add(first)
        else:
            middle = (first + last) // 2
            ended = Ended(
                StepKind.EXTRACT,
                step.shard,
                StepState.DONE,
                step.input,
                {"split": [[first, middle], [middle + 1, last]]},
            )
            todo += advance(Subject({}), ended).steps
    assert given_up == {bad}
    assert read == set(range(1, pages + 1)) - {bad}


def test_a_failed_knowledge_base_does_not_end_the_answer() -> None:
    counts = {(StepKind.RETRIEVE, StepState.FAILED): 1, (StepKind.RETRIEVE, StepState.DONE): 1}
    ended = Ended(StepKind.RETRIEVE, "kb", StepState.FAILED, {}, {}, "store_unavailable", "down")
    assert [step.kind for step in advance(Subject(counts), ended).steps] == [StepKind.GENERATE]


def test_a_page_that_kills_every_worker_is_given_up_and_the_document_goes_on() -> None:
    ended = Ended(StepKind.EXTRACT, "7-7", StepState.DEAD, {"first": 7, "last": 7}, {}, "worker_lost", "it died")
    result = advance(Subject({(StepKind.EXTRACT, StepState.DEAD): 1}), ended)
    assert result.output == {"lost": "it died"}
    assert [step.kind for step in result.steps] == [StepKind.ASSEMBLE]
