from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.analysis import MAX_TERM_CHARS, analyse, analyse_document

TEXTS = st.text(st.characters(), max_size=300)  # every code point, lone surrogates included
WORDS = st.text(st.sampled_from("abcdefgh"), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The company's Revenues", ["the", "compani", "revenu"]),
        ("O\u2019Neill's state-of-the-art snake_case", ["o", "neill", "state", "of", "the", "art", "snake", "case"]),
        ("$1,577.50 (3.5%) +7 -8", ["1577.50", "3.5", "7", "8"]),
        ("1,577 1577 10,000,000", ["1577", "1577", "10000000"]),
        ("[1,2,3] and 12,34", ["1", "2", "3", "and", "12", "34"]),
        ("v1.2.3 at 10.0.0.1.", ["v1.2.3", "at", "10.0.0.1"]),
        ("ＦＵＬＬ ｗｉｄｔｈ １２", ["full", "width", "12"]),  # noqa: RUF001 - that is the test
        ("ﬁne eﬀect", ["fine", "effect"]),
        ("exam\u00adple", ["exampl"]),
        ("退款政策", ["退款", "款政", "政策"]),
        ("退", ["退"]),
        ("GPT4模型v2", ["gpt4", "模型", "v2"]),
        ("ﾊﾟﾝﾀﾞ", ["パン", "ンダ"]),
        ("Straße ÉCOLE Müller", ["strass", "école", "müller"]),
        ("Годовой ОТЧЁТ", ["годовой", "отчёт"]),
        ("التقرير السنوي", ["التقرير", "السنوي"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("ไทย", ["ไท", "ทย"]),
        ("\ud800 a\x00b \u200b", ["a", "b"]),
        ("", []),
        ("… — !?", []),
    ],
)
def test_gives_the_terms(text: str, terms: list[str]) -> None:
    assert analyse(text) == terms


@given(TEXTS)
def test_terms_are_short_encodable_and_without_white_space(text: str) -> None:
    for term in analyse(text):
        assert 0 < len(term) <= MAX_TERM_CHARS
        assert term.split() == [term]
        term.encode()


@given(TEXTS)
def test_a_document_is_its_terms_joined(text: str) -> None:
    assert analyse_document(text).split(" ") == (analyse(text) or [""])


@given(TEXTS, TEXTS)
def test_a_line_break_separates(one: str, other: str) -> None:
    assert analyse(f"{one}\n{other}") == analyse(one) + analyse(other)


@given(st.lists(WORDS))
def test_case_and_width_do_not_matter(words: list[str]) -> None:
    text = " ".join(words)
    wide = "".join(chr(ord(letter) + 0xFEE0) if letter != " " else "\u3000" for letter in text)
    assert analyse(text) == analyse(text.upper()) == analyse(wide)


def test_composed_and_decomposed_accents_are_equal() -> None:
    assert analyse("caf\u00e9") == analyse("cafe\u0301") == ["caf\u00e9"]


def test_threads_get_the_same_terms() -> None:
    words = [f"generalization{ending}" for ending in ("s", "al", "ally", "ness", "ing", "ed")] * 50
    alone = [analyse(f"{word} {number}") for number, word in enumerate(words)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(analyse, (f"{word} {number}" for number, word in enumerate(words))))
    assert together == alone


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a\u0300\u0316",
        "\u0300\u0316",
        "1,",
        "1.",
        "1,577",
        "a's",
        "'s",
        "中",
        "_",
        "\ufdfa",
        "ﾊﾟ",
        " ",
        "\ud800",
        "\u1100\u1161",
    ],
)
def test_the_work_is_linear_in_hostile_text(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    analyse(unit)
    started = time.process_time()
    analyse(text)
    assert time.process_time() - started < 3
