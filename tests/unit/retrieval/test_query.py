from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.models import TextQuery
from pipeline.retrieval.query import MAX_QUERY_TERMS, is_empty, is_strict, parse, prose, satisfies

TEXTS = st.text(st.characters(), max_size=200)
OPERATORS = st.text(st.sampled_from('+-"“” ab5中\n'), max_size=60)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", TextQuery()),
        ("net income", TextQuery(any=("net", "incom"))),
        ("a a b a", TextQuery(any=("a", "b"))),
        ("+net -loss income", TextQuery(any=("incom",), required=("net",), excluded=("loss",))),
        ('"net income" tax', TextQuery(any=("tax",), phrases=(("net", "incom"),))),
        (
            '+"net income" -"cash flow"',
            TextQuery(required_phrases=(("net", "incom"),), excluded_phrases=(("cash", "flow"),)),
        ),
        ('"net"', TextQuery(any=("net",))),
        ('+"net"', TextQuery(required=("net",))),
        ("“net income”", TextQuery(phrases=(("net", "incom"),))),
        ("-“net income”", TextQuery(excluded_phrases=(("net", "incom"),))),
        ("-5 +5 -5%", TextQuery(any=("5",))),
        ("a-b c+d", TextQuery(any=("a", "b", "c", "d"))),
        ("a - b + c --d", TextQuery(any=("a", "b", "c", "d"))),
        ("+state-of-art", TextQuery(required_phrases=(("state", "of", "art"),))),
        ("退款政策", TextQuery(any=("退款", "款政", "政策"))),
        ("-退款政策", TextQuery(excluded_phrases=(("退款", "款政", "政策"),))),
        ('"unclosed words', TextQuery(any=("unclos", "word"))),
        ('""', TextQuery()),
        ('a 5" pipe and 6" bolts', TextQuery(any=("a", "5", "pipe", "and", "6", "bolt"))),
        ('-word"phrase here"', TextQuery(any=("phrase", "here"), excluded=("word",))),
        ("\x00\ud800+-\"'", TextQuery()),
    ],
)
def test_gives_the_query(text: str, query: TextQuery) -> None:
    assert parse(text) == query


@given(st.one_of(TEXTS, OPERATORS))
def test_every_text_is_a_query_with_a_bounded_number_of_terms(text: str) -> None:
    query = parse(text)
    phrases = (*query.phrases, *query.required_phrases, *query.excluded_phrases)
    assert len(query.any) + len(query.required) + len(query.excluded) + sum(map(len, phrases)) <= MAX_QUERY_TERMS
    assert all(len(phrase) > 1 for phrase in phrases)
    assert isinstance(prose(text), str)


@given(st.text(st.sampled_from("abc 中.,"), max_size=60))
def test_text_without_operators_is_only_words(text: str) -> None:
    query = parse(text)
    assert query == TextQuery(any=query.any)
    assert prose(text) == text.strip()


@given(OPERATORS)
def test_an_empty_query_satisfies_or_is_told_apart(text: str) -> None:
    query = parse(text)
    assert is_empty(query) == (not (query.any or query.phrases or query.required or query.required_phrases))


@pytest.mark.parametrize("unit", ['"', "“", '+"', "-a ", "+“", "a", " -", "\ud800", '"a" '])
def test_a_megabyte_of_anything_is_parsed_soon(unit: str) -> None:
    started = time.process_time()
    parse(unit * (1_000_000 // len(unit)))
    prose(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 3


def test_the_first_terms_of_a_long_question_count() -> None:
    query = parse(" ".join(f"w{number}" for number in range(5_000)))
    assert query.any == tuple(f"w{number}" for number in range(MAX_QUERY_TERMS))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("What is +net -loss income?", "What is net  income?"),
        ('about "net income" -"cash flow" -5', "about net income  -5"),
        ("-only", ""),
    ],
)
def test_prose_is_what_is_asked_for(text: str, said: str) -> None:
    assert prose(text) == said


@pytest.mark.parametrize(
    ("text", "strict"),
    [("words", False), ('words "and phrase"', False), ('"only phrase"', True), ("+a b", True), ("a -b", True)],
)
def test_signs_and_lone_phrases_are_strict(text: str, strict: bool) -> None:
    assert is_strict(parse(text)) is strict


@pytest.mark.parametrize(
    ("text", "terms", "obeys"),
    [
        ("+a", "a b", True),
        ("+a", "b", False),
        ("x -b", "a b", False),
        ('+"a b"', "x a b y", True),
        ('+"a b"', "a x b", False),
        ('x -"a b"', "a b", False),
        ('"a b" "c d"', "c d", True),
        ('"a b" "c d"', "b c", False),
        ('"a b" c', "b", True),
        ('"a b"', "aa b", False),
    ],
)
def test_satisfies_reads_signs_and_lone_phrases(text: str, terms: str, obeys: bool) -> None:
    assert satisfies(parse(text), terms.split()) is obeys
