"""Jobs and steps: what one unit of work is, and `advance`, the whole life of a job as one pure function.

A step's row is inserted when it may run, so no row waits for another. States::

    ready -> running -> done
      ^         |-----> failed     permanent error
      |---------|-----> dead       used up its attempts; kept with its reason, replayable
                |-----> cancelled
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pipeline.models import MessageStatus, RevisionState


class StepKind(StrEnum):
    PLAN = "ingest.plan"
    EXTRACT = "ingest.extract"
    ASSEMBLE = "ingest.assemble"
    INDEX_TEXT = "ingest.index_text"
    EMBED = "ingest.embed"
    INDEX_VECTORS = "ingest.index_vectors"
    ACTIVATE = "ingest.activate"
    REMOVE = "ingest.remove"
    AUTO_QUERY = "chat.auto_query"
    RETRIEVE = "chat.retrieve"
    GENERATE = "chat.generate"


class StepState(StrEnum):
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"


OPEN_STATES = frozenset({StepState.READY, StepState.RUNNING})


@dataclass(frozen=True, slots=True)
class Policy:
    """How steps of one kind run. Limits hold in prefork pools only; threads rely on the lease.

    `bundle` steps or `bundle_weight` of their summed weights, whichever is reached first, travel in one message.
    `credit` bounds the steps of the queue that are sent or running at once. A step that is asked to wait longer than
    `wait_limit_s` ends instead. A `patient` one waits for a store or disk as long as it takes, whatever its attempts.
    """

    queue: str
    pool: str
    soft_limit_s: int
    hard_limit_s: int
    lease_s: float
    max_attempts: int
    backoff_s: float
    backoff_max_s: float
    bundle: int
    bundle_weight: int
    credit: int
    wait_limit_s: float
    patient: bool


@dataclass(frozen=True, slots=True)
class NewStep:
    """A step to insert. `weight` is its size: pages for extract, chunks for index and embed, 1 for the others."""

    kind: StepKind
    shard: str = "0"
    input: Mapping[str, Any] = field(default_factory=dict)
    weight: int = 1
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A claimed step: what a worker needs to do the work and to prove at commit that it still owns it."""

    id: int
    job_id: str
    tenant_id: str
    subject: str
    kind: StepKind
    shard: str
    attempt: int
    max_attempts: int
    fence: int
    input: Mapping[str, Any]
    weight: int = 1

    @property
    def document(self) -> tuple[str, int]:
        """(document_id, revision) of an ingest step."""
        document_id, _, revision = self.subject.rpartition(":")
        return document_id, int(revision)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. `state` is DONE, FAILED (permanent), READY (transient: try again) or CANCELLED."""

    step: Step
    state: StepState
    output: Mapping[str, Any] = field(default_factory=dict)
    error_code: str | None = None
    error: str | None = None
    retry_after_s: float | None = None
    work_s: float = 0.0
    peak_rss_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A step in its last state, as `advance` sees it."""

    kind: StepKind
    shard: str
    state: StepState
    input: Mapping[str, Any]
    output: Mapping[str, Any]
    error_code: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What `advance` may know of the others: how many steps of a kind are in a state, this one included.

    `replaces_live` is True when another revision of the document answers until this one is ready.
    """

    counts: Mapping[tuple[StepKind, StepState], int]
    replaces_live: bool = False

    def open(self, *kinds: StepKind) -> int:
        return sum(n for (kind, state), n in self.counts.items() if kind in kinds and state in OPEN_STATES)


@dataclass(frozen=True, slots=True)
class Advance:
    """What follows: steps to insert, the subject's new state with its facts, whether the rest is cancelled.

    With `output`, the ended step counts as done with it, whatever its state was.
    """

    steps: tuple[NewStep, ...] = ()
    output: Mapping[str, Any] | None = None
    state: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    live: bool = False
    cancel_rest: bool = False


NOTHING = Advance()


def revision_subject(document_id: str, revision: int) -> str:
    return f"{document_id}:{revision}"


def advance(subject: Subject, ended: Ended) -> Advance:
    """The steps and the state that follow from one step's end. Pure; order of ends does not matter."""
    if ended.state is StepState.CANCELLED and ended.kind is not StepKind.RETRIEVE:
        return NOTHING
    if ended.state in (StepState.FAILED, StepState.DEAD) and ended.kind in _ON_FAILURE:
        return _ON_FAILURE[ended.kind](subject, ended)
    return _ON_DONE[ended.kind](subject, ended)


def _planned(_: Subject, ended: Ended) -> Advance:
    output = ended.output
    return Advance(
        steps=tuple(_extract(first, last) for first, last in output["shards"]),
        state=RevisionState.EXTRACTING,
        facts={name: output[name] for name in ("media_type", "page_count", "title")},
    )


def _extract(first: int, last: int) -> NewStep:
    return NewStep(StepKind.EXTRACT, f"{first}-{last}", {"first": first, "last": last}, last - first + 1)


def _extracted(subject: Subject, ended: Ended) -> Advance:
    """A shard whose parser died is halved until the one bad page is alone; the step that says so is done."""
    split = ended.output.get("split")
    if split:
        return Advance(steps=tuple(_extract(first, last) for first, last in split))
    if subject.open(StepKind.EXTRACT):
        return NOTHING
    return Advance(steps=(NewStep(StepKind.ASSEMBLE),))


def _extract_lost(subject: Subject, ended: Ended) -> Advance:
    """The worker itself died on this shard, attempt after attempt: halve it; one page alone is given up."""
    if ended.state is StepState.FAILED:
        return _document_failed(subject, ended)
    first, last = ended.input["first"], ended.input["last"]
    middle = (first + last) // 2
    halves = {"split": [[first, middle], [middle + 1, last]]}
    output = {"lost": ended.error} if first == last else halves
    return replace(_extracted(subject, replace(ended, output=output)), output=output)


def _assembled(_: Subject, ended: Ended) -> Advance:
    output = ended.output
    facts = {name: output[name] for name in _ASSEMBLY_FACTS}
    if not output["batches"]:
        return Advance(state=RevisionState.EMPTY, facts=facts, live=True)
    batches = [(str(n), {"batch": blob}, size) for n, (blob, size) in enumerate(output["batches"])]
    index = tuple(NewStep(StepKind.INDEX_TEXT, *batch) for batch in batches)
    embed = tuple(NewStep(StepKind.EMBED, *batch) for batch in batches)
    return Advance(steps=index + embed, state=RevisionState.INDEXING, facts=facts)


_ASSEMBLY_FACTS = ("title", "text_blob", "outline_blob", "chunk_count", "char_count", "missing_pages")


def _text_indexed(subject: Subject, _: Ended) -> Advance:
    if subject.open(StepKind.INDEX_TEXT):
        return NOTHING
    if not subject.open(StepKind.EMBED, StepKind.INDEX_VECTORS):
        return Advance(steps=(NewStep(StepKind.ACTIVATE),))
    if subject.replaces_live:
        return NOTHING
    return Advance(state=RevisionState.SEARCHABLE, live=True)


def _embedded(_: Subject, ended: Ended) -> Advance:
    given = {"batch": ended.input["batch"], "vectors": ended.output["vectors"]}
    return Advance(steps=(NewStep(StepKind.INDEX_VECTORS, ended.shard, given, ended.output["chunks"]),))


def _vectors_indexed(subject: Subject, _: Ended) -> Advance:
    if subject.open(StepKind.INDEX_TEXT, StepKind.EMBED, StepKind.INDEX_VECTORS):
        return NOTHING
    return Advance(steps=(NewStep(StepKind.ACTIVATE),))


def _document_failed(_: Subject, ended: Ended) -> Advance:
    facts = {"error_code": ended.error_code, "error": ended.error}
    return Advance(state=RevisionState.FAILED, facts=facts, cancel_rest=True)


def _queries_planned(_: Subject, ended: Ended) -> Advance:
    by_kb: dict[str, list[str]] = {}
    for query in ended.output["queries"]:
        by_kb.setdefault(query["kb_id"], []).append(query["query"])
    if not by_kb:
        return Advance(steps=(NewStep(StepKind.GENERATE),))
    return Advance(steps=tuple(NewStep(StepKind.RETRIEVE, kb, {"queries": q}) for kb, q in by_kb.items()))


def _retrieved(subject: Subject, _: Ended) -> Advance:
    """The fan-in: every knowledge base answered, failed or ran out of time; `generate` names who did not."""
    if subject.open(StepKind.RETRIEVE) or any(kind is StepKind.GENERATE for kind, _state in subject.counts):
        return NOTHING
    return Advance(steps=(NewStep(StepKind.GENERATE),))


def _generated(_: Subject, ended: Ended) -> Advance:
    return Advance(state=MessageStatus.FINISHED, facts={"record": ended.output["record"]})


def _message_failed(_: Subject, ended: Ended) -> Advance:
    facts = {"error_code": ended.error_code, "error": ended.error}
    return Advance(state=MessageStatus.FAILED, facts=facts, cancel_rest=True)


Rule = Callable[[Subject, Ended], Advance]

_ON_DONE: dict[StepKind, Rule] = {
    StepKind.PLAN: _planned,
    StepKind.EXTRACT: _extracted,
    StepKind.ASSEMBLE: _assembled,
    StepKind.INDEX_TEXT: _text_indexed,
    StepKind.EMBED: _embedded,
    StepKind.INDEX_VECTORS: _vectors_indexed,
    StepKind.ACTIVATE: lambda *_: Advance(state=RevisionState.READY, live=True),
    StepKind.REMOVE: lambda *_: Advance(facts={"removed": True}),
    StepKind.AUTO_QUERY: _queries_planned,
    StepKind.RETRIEVE: _retrieved,
    StepKind.GENERATE: _generated,
}

#: RETRIEVE is absent: one knowledge base's failure is the answer's `degraded`, not its end.
_ON_FAILURE: dict[StepKind, Rule] = {
    **dict.fromkeys((StepKind.PLAN, StepKind.ASSEMBLE, StepKind.INDEX_TEXT), _document_failed),
    **dict.fromkeys((StepKind.EMBED, StepKind.INDEX_VECTORS, StepKind.ACTIVATE), _document_failed),
    **dict.fromkeys((StepKind.AUTO_QUERY, StepKind.GENERATE), _message_failed),
    StepKind.EXTRACT: _extract_lost,
    StepKind.REMOVE: lambda *_: NOTHING,
}
