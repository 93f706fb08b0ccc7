from __future__ import annotations

import time

import pytest

from pipeline.inference.tokens import token_counter


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("hello world", 2),
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("<|endoftext|>", 7),
        ("\ud800", 1),
    ],
)
def test_tokens_are_counted_as_o200k_base_counts_them(text, tokens):
    assert token_counter().count(text) == tokens


@pytest.mark.parametrize("unit", ["a", " ", "\n", "\u4e2d", "!", "word "])
def test_a_long_text_of_anything_is_counted_in_linear_time(unit):
    started = time.process_time()
    assert token_counter().count(unit * 200_000) > 0
    assert time.process_time() - started < 3
