from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.chat.history import select
from pipeline.models import ChatMessage

TURNS = st.lists(
    st.builds(ChatMessage, st.sampled_from(["user", "assistant"]), st.text("ab ", max_size=12)), max_size=8
)


def test_the_newest_messages_that_fit_are_kept_whole():
    turns = [ChatMessage("user", "aaaa"), ChatMessage("assistant", "bbbbbb"), ChatMessage("user", "cc")]
    assert select(turns, 8, len) == tuple(turns[1:])
    assert select(turns, 7, len) == tuple(turns[2:])
    assert select(turns, 12, len) == tuple(turns)


def test_it_stops_at_the_first_that_does_not_fit():
    turns = [ChatMessage("user", "a"), ChatMessage("assistant", "bbbbbb"), ChatMessage("user", "cc")]
    assert select(turns, 5, len) == tuple(turns[2:])


def test_a_question_over_the_budget_alone_is_cut_to_it():
    assert select([ChatMessage("user", "abcdef")], 3, len) == (ChatMessage("user", "abc"),)
    assert select([ChatMessage("user", "abcdef")], 0, len) == (ChatMessage("user", "a"),)


def test_no_turns_give_no_history():
    assert select([], 100, len) == ()


@given(TURNS, st.integers(0, 40))
def test_the_newest_user_message_always_survives_and_the_budget_holds(turns, budget):
    kept = select(turns, budget, len)
    asked = [turn for turn in turns if turn.role == "user"]
    if asked:
        survivor = [turn for turn in kept if turn.role == "user"][-1]
        assert asked[-1].content.startswith(survivor.content)
        assert survivor.content or not asked[-1].content
    assert sum(len(turn.content) for turn in kept) <= max(budget, 1)
    whole = [turn for turn in kept if turn in turns]
    assert len(whole) >= len(kept) - 1
