from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.chat.normalise import normalise
from tests.unit.chat.texts import TEXTS


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the ofﬁce", "the office"),
        ("inter-\nnational trade", "international trade"),
        ("inter\u00ad\nnational", "international"),
        ("inter\x02\r\nnational", "international"),
        ("long-\nterm debt", "long-term debt"),
        ("COVID-\n19", "COVID-19"),
        ("a  b\r\n\tc", "a b c"),
        ("“It\u2019s”", '"It\'s"'),
        ("2019\u20132020", "2019-2020"),
        ("\u22125", "-5"),
        ("cafe\u0301", "café"),
        ("zero\u200bwidth", "zerowidth"),
        ("中\n国 的", "中国的"),
        ("\uff21\uff22\uff23\uff11\uff12", "ABC12"),
        ("CO₂", "CO2"),
        ("ｶﾞ", "ガ"),
    ],
)
def test_what_a_reader_calls_the_same_is_the_same(one, other):
    assert normalise(one).text == normalise(other).text


@pytest.mark.parametrize(
    ("one", "other"),
    [("10²", "102"), ("6½", "61/2"), ("Apple", "apple"), ("-5", "5"), ("1,5", "15"), ("a b", "ab"), ("café", "cafe")],
)
def test_what_a_reader_calls_different_stays_different(one, other):
    assert normalise(one).text != normalise(other).text


@given(TEXTS, st.data())
def test_every_span_leads_back_to_a_source_span_with_the_same_form(text, data):
    form = normalise(text)
    start = data.draw(st.integers(0, len(form.text)))
    end = data.draw(st.integers(start, len(form.text)))
    span = form.source_span(start, end)
    if span is not None:
        assert normalise(text[slice(*span)]).text == form.text[start:end]


@given(TEXTS)
def test_only_spans_that_cut_a_unit_have_no_source(text):
    form = normalise(text)
    for at in range(len(form.text)):
        alone = form.source_span(at, at + 1)
        if alone is None:
            unit = text[form.starts[at] : form.ends[at]]
            assert len(normalise(unit).text) > 1


@given(TEXTS)
def test_offsets_rise_and_stay_inside(text):
    form = normalise(text)
    assert len(form.text) == len(form.starts) == len(form.ends)
    assert list(form.starts) == sorted(form.starts)
    assert all(0 <= start < end <= len(text) for start, end in zip(form.starts, form.ends, strict=True))


@given(st.text(alphabet="abc e\u0301\u0327\u1100\u1161\u11a8가ｶﾞﬁÅ"))
def test_letters_are_composed_as_nfkc_composes_them(text):
    expected = " ".join(unicodedata.normalize("NFKC", text).split(" "))
    assert normalise(text).text.replace(" ", "") == expected.replace(" ", "")


@pytest.mark.parametrize(
    "unit", ["a", "\u0301", "e\u0301\u0327", " ", "-", "- ", "\u00ad", "中 ", "ﬁ", "\u200b", "\U0001f642"]
)
def test_a_megabyte_of_anything_takes_linear_time(unit):
    text = unit * (400_000 // len(unit))
    started = time.process_time()
    normalise(text)
    assert time.process_time() - started < 5
