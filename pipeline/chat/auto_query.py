"""Which queries to ask of which knowledge base."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from pipeline.chat.terms import content_terms
from pipeline.errors import PermanentError
from pipeline.inference.ports import StructuredModel
from pipeline.models import ChatMessage, Degradation, KnowledgeBase, SearchQuery
from pipeline.prompts import load_prompt

MAX_QUERIES = 5
MAX_QUERY_CHARS = 2000
_MAX_TOKENS = 600
_FOLLOW_UP = re.compile(
    r"^\W*(?:and|but|so|also|then|what about|how about|why)\b|^(?:它|那|这|他|她|还有)"
    r"|\b(?:it|its|they|them|their|he|she|his|her|that|this|those|these)\b",
    re.IGNORECASE,
)
_FEW_TERMS = 2
_TAG = re.compile(r"[<>\"\r\n]+")


@dataclass(frozen=True, slots=True)
class PlannedQueries:
    queries: tuple[SearchQuery, ...]
    degraded: tuple[Degradation, ...] = ()


class _Query(BaseModel):
    query: str
    kb_id: str


class Queries(BaseModel):
    """What the model fills."""

    queries: list[_Query]


def plan_queries(
    question: str,
    history: Sequence[ChatMessage],
    kbs: Sequence[KnowledgeBase],
    guidance: str,
    model: StructuredModel | None,
    *,
    max_queries: int = MAX_QUERIES,
) -> PlannedQueries:
    """At least one query for each knowledge base; `history` has the turns before the question.

    The model may plan up to `max_queries`, but fewer where a knowledge base that it left out needs the
    question itself. Without a model, and when it fails for good (`degraded` says so), every knowledge base is
    asked the question, after the question before it if it can't stand alone. TransientError goes to the caller.
    """
    plain = [SearchQuery(_standalone(question, history), kb.id) for kb in kbs]
    if model is None or not kbs:
        return PlannedQueries(tuple(plain))
    messages = [ChatMessage("system", _system(kbs, guidance, max_queries)), *history, ChatMessage("user", question)]
    try:
        reply = model.complete(messages, Queries, max_tokens=_MAX_TOKENS)
    except PermanentError as error:
        reason = f"The question was searched as it is, because the model could not plan queries: {error.message}"
        return PlannedQueries(tuple(plain), (Degradation("auto_query", error.code, reason),))
    return PlannedQueries(_chosen(reply, plain, max_queries))


def _chosen(reply: Queries, plain: Sequence[SearchQuery], max_queries: int) -> tuple[SearchQuery, ...]:
    valid = _valid(reply, [query.kb_id for query in plain])
    asked = {query.kb_id for query in valid}
    left_out = [query for query in plain if query.kb_id not in asked]
    room = max(max_queries - len(left_out), min(1, len(valid)))
    return (*_in_turn(valid, room), *left_out)


def _valid(reply: Queries, kb_ids: Sequence[str]) -> list[SearchQuery]:
    """Queries for known knowledge bases, each once. With only one there is no doubt which was meant."""
    found: dict[tuple[str, str], SearchQuery] = {}
    for each in reply.queries:
        text = " ".join(each.query.split())[:MAX_QUERY_CHARS]
        kb_id = kb_ids[0] if len(kb_ids) == 1 else each.kb_id
        if text and kb_id in kb_ids:
            found.setdefault((text.casefold(), kb_id), SearchQuery(text, kb_id))
    return list(found.values())


def _in_turn(queries: Sequence[SearchQuery], limit: int) -> Iterator[SearchQuery]:
    """The first query of each knowledge base, then the second of each, … up to the limit."""
    waiting: Mapping[str, deque[SearchQuery]] = defaultdict(deque)
    for query in queries:
        waiting[query.kb_id].append(query)
    turns = deque(waiting.values())
    while turns and limit > 0:
        turn = turns.popleft()
        yield turn.popleft()
        limit -= 1
        if turn:
            turns.append(turn)


def _standalone(question: str, history: Sequence[ChatMessage]) -> str:
    """A short or referring question after the question that it follows."""
    text = " ".join(question.split())[:MAX_QUERY_CHARS]
    before = next((turn.content for turn in reversed(history) if turn.role == "user"), "")
    needs_it = len(content_terms(text)) <= _FEW_TERMS or _FOLLOW_UP.search(text) is not None
    return f"{' '.join(before.split())[:MAX_QUERY_CHARS]} {text}" if before and needs_it else text


def _system(kbs: Sequence[KnowledgeBase], guidance: str, max_queries: int) -> str:
    listed = "\n".join(
        f'<knowledge_base id="{_plain(kb.id)}" name="{_plain(kb.name)}">{_plain(kb.description)}</knowledge_base>'
        for kb in kbs
    )
    rules = load_prompt("auto_query").text.replace("{max_queries}", str(max_queries))
    return "\n\n".join(part for part in (rules, guidance, listed) if part)


def _plain(text: str) -> str:
    return _TAG.sub(" ", text)
