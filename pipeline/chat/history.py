"""How much of a conversation a model gets to see."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.models import ChatMessage


def select(turns: Sequence[ChatMessage], max_tokens: int, count: Callable[[str], int]) -> tuple[ChatMessage, ...]:
    """The newest messages that fit into `max_tokens` (of their contents), in order, whole.

    It stops at the first that does not fit, so the conversation has no holes. The newest user message always
    survives, even with a budget of 0, and it has the first claim on the budget; only when it alone is over the
    budget is it cut, at its end, to the budget or to one character at least.
    """
    newest = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=None)
    if newest is None:
        return tuple(_fitting(turns, max_tokens, count))
    question = _cut(turns[newest], max_tokens, count)
    left = max_tokens - count(question.content)
    after = _fitting(turns[newest + 1 :], left, count)
    left -= sum(count(turn.content) for turn in after)
    before = _fitting(turns[:newest], left, count) if len(after) == len(turns) - newest - 1 else []
    return (*before, question, *after)


def _fitting(turns: Sequence[ChatMessage], max_tokens: int, count: Callable[[str], int]) -> list[ChatMessage]:
    kept: list[ChatMessage] = []
    for turn in reversed(turns):
        max_tokens -= count(turn.content)
        if max_tokens < 0:
            break
        kept.append(turn)
    return kept[::-1]


def _cut(turn: ChatMessage, max_tokens: int, count: Callable[[str], int]) -> ChatMessage:
    """Bisection, because a prefix has at most as many tokens as a longer one, give or take one."""
    if count(turn.content) <= max_tokens:
        return turn
    low, high = 1, max(1, len(turn.content) - 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(turn.content[:middle]) <= max_tokens else (low, middle - 1)
    return ChatMessage(turn.role, turn.content[:low])
