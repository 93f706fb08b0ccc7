from __future__ import annotations

import time

import pytest
from hypothesis import given

from pipeline.chat.sentences import is_row, sentence_spans, trimmed
from tests.unit.chat.texts import TEXTS


def sentences(text):
    return [text[slice(*trimmed(text, span))] for span in sentence_spans(text)]


@given(TEXTS)
def test_sentences_tile_the_text(text):
    spans = sentence_spans(text)
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(start < end for start, end in spans)


@given(TEXTS)
def test_only_a_first_sentence_begins_with_white_space(text):
    assert not any(text[start].isspace() for start, _ in sentence_spans(text)[1:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One is here. Two is there! Three?", ["One is here.", "Two is there!", "Three?"]),
        (
            "Mr. Smith of Acme Inc. paid $3.5 million. He left.",
            ["Mr. Smith of Acme Inc. paid $3.5 million.", "He left."],
        ),
        ("See e.g. the U.S. Army. It won.", ["See e.g. the U.S. Army.", "It won."]),
        ("J. R. R. Tolkien wrote it. Good.", ["J. R. R. Tolkien wrote it.", "Good."]),
        ("He said “stop.” She did.", ["He said “stop.”", "She did."]),
        ("我们来了。他走了\uff01“好。”是的", ["我们来了。", "他走了\uff01", "“好。”", "是的"]),
        ("这里有3.5亿元。", ["这里有3.5亿元。"]),
        ("1. First item\n2. Second item", ["1. First item", "2. Second item"]),
        ("Points:\n- one\n- two", ["Points:", "- one", "- two"]),
        (
            "A sentence that a PDF breaks over\ntwo lines. Next.",
            ["A sentence that a PDF breaks over\ntwo lines.", "Next."],
        ),
        ("Revenue 5,363 4,869\nCost of sales (1,577) $ 12", ["Revenue 5,363 4,869", "Cost of sales (1,577) $ 12"]),
        ("| a | b |\n| c | d |", ["| a | b |", "| c | d |"]),
        ("Title Of It\nThe text begins here.", ["Title Of It", "The text begins here."]),
        ("One paragraph\n\nand another", ["One paragraph", "and another"]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(text, expected):
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "line", ["Revenue 5,363 4,869", "Total $ 12", "a\tb", "| a | b |", "Purchases of PP&E (1,577) (1,373)"]
)
def test_rows_of_tables_are_known(line):
    assert is_row(line)


@pytest.mark.parametrize("line", ["", "Revenue grew by 5", "It was founded in the year of our Lord 1998", "No numbers"])
def test_prose_is_no_row(line):
    assert not is_row(line)


@pytest.mark.parametrize("unit", ["\n", "a.\n", ". ", "。", " ", "1 2\n", "- a\n", "A. ", '"', "a. b"])
def test_a_long_text_of_anything_takes_linear_time(unit):
    text = unit * (300_000 // len(unit))
    started = time.process_time()
    sentence_spans(text)
    assert time.process_time() - started < 5
