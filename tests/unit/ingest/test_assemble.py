"""The invariants of ingestion: page spans, sections and chunks with furniture tile the text."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.ingest.assemble import Assembled, assemble
from pipeline.ingest.chunk import ChunkSize, chunk_id, cumulative_widths
from pipeline.ingest.header import header
from pipeline.models import ExtractedPage, ExtractedShard, Heading

SMALL = ChunkSize(target=40, maximum=50, minimum=10)
LATIN = ["the", "net sales", " ", "\n", "\n\n", ". ", "! ", "a\u0301", " | ", "34,229", "\t", "x" * 60, "Z", "- item\n"]
OTHER = ["。", "你好世界", "👩\u200d👩\u200d👧", "🇩🇪", "각", "\u200b", "नमस्ते", "\u3000"]
WORDS = st.sampled_from(LATIN + OTHER)
TEXTS = st.one_of(st.text(max_size=300), st.lists(WORDS, max_size=120).map("".join))


@st.composite
def pages(draw: st.DrawFn, number: int) -> ExtractedPage:
    text = draw(TEXTS)
    offsets = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    titles = st.text(min_size=1, max_size=5)
    headings = tuple(Heading(offset, draw(st.integers(1, 4)), draw(titles)) for offset in offsets)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=4)))
    furniture = tuple(zip(cuts[::2], cuts[1::2], strict=False)) if draw(st.booleans()) else ()
    return ExtractedPage(number, text, headings, furniture)


@st.composite
def documents(draw: st.DrawFn) -> list[ExtractedShard]:
    count = draw(st.integers(0, 6))
    made = [draw(pages(number)) for number in range(1, count + 1)]
    cut = draw(st.integers(0, count))
    return [ExtractedShard(tuple(made[:cut])), ExtractedShard(tuple(made[cut:]))]


def assert_tiles(spans: list[tuple[int, int]], length: int) -> None:
    position = 0
    for start, end in sorted(spans):
        assert start == position
        assert end >= start
        position = end
    assert position == length


def assert_invariants(document: Assembled) -> None:
    text, outline, chunks = document.text, document.outline, document.chunks
    assert_tiles([(page.start, page.end) for page in outline.pages], len(text))
    assert_tiles([(section.start, section.end) for section in outline.sections], len(text))
    assert_tiles([*((chunk.start, chunk.end) for chunk in chunks), *outline.furniture], len(text))
    assert [section.index for section in outline.sections] == list(range(len(outline.sections)))
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        section = outline.sections[chunk.section]
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text.strip()
        assert section.start <= chunk.start
        assert chunk.end <= section.end
        assert 1 <= chunk.page_start <= chunk.page_end


@settings(max_examples=300, deadline=None)
@given(documents())
def test_pages_sections_and_chunks_with_furniture_tile_every_text(shards: list[ExtractedShard]) -> None:
    document = assemble(shards, None, "key", SMALL)
    assert document.text == "".join(page.text for shard in shards for page in shard.pages)
    assert_invariants(document)


@settings(max_examples=100, deadline=None)
@given(documents())
def test_assembling_twice_gives_the_same_in_any_order_of_shards(shards: list[ExtractedShard]) -> None:
    assert assemble(shards, "t", "key", SMALL) == assemble(shards[::-1], "t", "key", SMALL)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_only_white_space_and_unbreakable_sequences_pass_the_maximum(text: str) -> None:
    for chunk in assemble([one_page(text)], None, "key", SMALL).chunks:
        core = chunk.text.strip()
        assert int(cumulative_widths(core)[-1]) <= SMALL.maximum + 2 * 64 or " " * 8 in core


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a\u0301", "e\u0323\u0302", "न\u093f", "한", "x"]), min_size=60, max_size=300).map(
        "".join
    )
)
def test_no_chunk_starts_with_a_combining_mark(text: str) -> None:
    chunks = assemble([one_page(text)], None, "key", SMALL).chunks
    assert len(chunks) > 1
    assert not any(unicodedata.category(chunk.text[0]).startswith("M") for chunk in chunks)


@pytest.mark.parametrize("joined", ["👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "a\u0301\u0323"])
def test_no_chunk_tears_a_joined_sequence(joined: str) -> None:
    for chunk in assemble([one_page(joined * 200)], None, "key", SMALL).chunks:
        assert chunk.text == joined * (len(chunk.text) // len(joined))


def one_page(text: str, *headings: Heading) -> ExtractedShard:
    return ExtractedShard((ExtractedPage(1, text, headings),))


def paged(*texts: str) -> ExtractedShard:
    return ExtractedShard(tuple(ExtractedPage(number, text) for number, text in enumerate(texts, 1)))


@pytest.mark.parametrize("text", ["", " ", "\n\n\t\n", "\u3000" * 5000])
def test_a_blank_text_has_no_chunks(text: str) -> None:
    assert assemble([one_page(text)], None, "key").chunks == ()


def test_prose_is_cut_at_sentence_ends_near_the_target() -> None:
    sentence = "The mill turns piles of documents into answers with proof. "
    chunks = assemble([one_page(sentence * 100)], None, "key").chunks
    assert all(chunk.text.startswith("The mill") and chunk.text.endswith("proof. ") for chunk in chunks)
    assert all(600 <= len(chunk.text) <= 900 for chunk in chunks[:-2])


def test_a_paragraph_end_is_preferred_to_a_sentence_end() -> None:
    paragraph = "One sentence here. Another sentence there. " * 12
    chunks = assemble([one_page(f"{paragraph}\n\n{paragraph}\n\n{paragraph}")], None, "key").chunks
    assert [chunk.text.strip() for chunk in chunks] == [paragraph.strip()] * 3


def test_chinese_is_cut_at_its_full_stops_into_at_most_450_characters() -> None:
    chunks = assemble([one_page("这是一个关于分布式数据库的句子它说明了很多事情。" * 200)], None, "key").chunks
    assert all(chunk.text.endswith("。") for chunk in chunks)
    assert all(300 <= len(chunk.text) <= 450 for chunk in chunks[:-2])


def test_chinese_without_punctuation_is_cut_all_the_same() -> None:
    chunks = assemble([one_page("数" * 10_000)], None, "key").chunks
    assert max(len(chunk.text) for chunk in chunks) <= 450
    assert min(len(chunk.text) for chunk in chunks) >= 100


def test_a_table_row_is_not_torn() -> None:
    row = "Item No. 7 | A long description. It has two sentences. | 34,229 | 35,355"
    chunks = assemble([one_page("\n".join([row] * 60))], None, "key").chunks
    assert len(chunks) > 3
    assert all(line == row for chunk in chunks for line in chunk.text.strip("\n").split("\n"))


def test_no_crumb_is_left_at_the_end() -> None:
    for length in range(880, 1100, 7):
        chunks = assemble([one_page("word " * (length // 5))], None, "key").chunks
        assert min(len(chunk.text) for chunk in chunks) >= 200


@pytest.mark.parametrize("piece", [".", "a", " ", ". ", "\n ", "。", "\u0301", "a\u0301", "| ", " | \n"])
def test_monotonous_text_takes_linear_time(piece: str) -> None:
    started = time.perf_counter()
    assert_invariants(assemble([one_page(piece * (500_000 // len(piece)))], None, "key"))
    assert time.perf_counter() - started < 10


def test_five_megabytes_assemble_in_seconds() -> None:
    line = "Net sales rose to 34,229 million in the year. See note 7 | 12 | 13\n"
    started = time.perf_counter()
    document = assemble([one_page(line * (5_000_000 // len(line)))], None, "key")
    assert time.perf_counter() - started < 20
    assert_invariants(document)


def test_running_headers_and_page_numbers_are_furniture_and_in_no_chunk() -> None:
    tales = ["frogs", "mills", "stones", "wheels", "rivers", "dams", "boats", "nets"]
    texts = [
        f"ACME Annual Report 2022\nThis is about {tale}.\nIt goes by {tale}.\n{n}\n" for n, tale in enumerate(tales, 1)
    ]
    document = assemble([paged(*texts)], None, "key")
    assert_invariants(document)
    body = "".join(chunk.text for chunk in document.chunks)
    assert "ACME" not in body
    assert "about rivers" in body
    assert len(document.chunks) == 8
    furniture = [document.text[start:end] for start, end in document.outline.furniture]
    assert furniture[1] == "1\nACME Annual Report 2022\n"


def test_alternating_headers_of_a_book_are_furniture() -> None:
    texts = [f"{'Left title' if n % 2 else 'Right title'}\nBody {'abcdefghij'[n]} text.\n" for n in range(10)]
    body = "".join(chunk.text for chunk in assemble([paged(*texts)], None, "key").chunks)
    assert "title" not in body
    assert body.count("Body") == 10


def test_pages_that_all_say_the_same_keep_their_text() -> None:
    document = assemble([paged(*["Draft\n"] * 5)], None, "key")
    assert "".join(chunk.text for chunk in document.chunks) == "Draft\n" * 5


def test_a_repeated_line_inside_pages_stays_text() -> None:
    texts = [f"Start {c}\nsome words\nmore words\nTotal\nother words\nfar more\nEnd {c}{c}\n" for c in "abcdef"]
    assert assemble([paged(*texts)], None, "key").outline.furniture == ()


def test_section_paths_are_the_titles_from_the_top() -> None:
    text = "".join(f"{title}\n{'word ' * 60}\n" for title in ("A", "B", "C", "D"))
    size = len(text) // 4
    headings = [
        Heading(index * size, level, title)
        for index, (level, title) in enumerate([(1, "A"), (2, "B"), (3, "C"), (2, "D")])
    ]
    sections = assemble([one_page(text, *headings)], None, "key").outline.sections
    assert [section.path for section in sections] == [("A",), ("A", "B"), ("A", "B", "C"), ("A", "D")]
    assert [section.level for section in sections] == [1, 2, 3, 2]


def test_a_chapter_title_joins_its_first_section() -> None:
    body = "word " * 100
    text = f"Chapter\n\nFirst\n{body}\n\nSecond\n{body}"
    headings = [
        Heading(text.index(title), level, title) for title, level in (("Chapter", 1), ("First", 2), ("Second", 2))
    ]
    sections = assemble([one_page(text, *headings)], None, "key").outline.sections
    assert [section.path for section in sections] == [("Chapter", "First"), ("Chapter", "Second")]


def test_a_run_of_tiny_sections_is_joined_under_their_common_title() -> None:
    entries = "".join(f"{letter * 3}\nshort\n" for letter in "abcdef")
    body = "word " * 100
    text = f"Top\n{body}\n{entries}"
    start = text.index("aaa")
    headings = [
        Heading(0, 1, "Top"),
        *(Heading(start + 10 * index, 2, letter) for index, letter in enumerate("abcdef")),
    ]
    sections = assemble([one_page(text, *headings)], None, "key").outline.sections
    assert [section.path for section in sections] == [("Top",), ("Top",)]


@pytest.mark.parametrize(
    ("given", "headings", "key", "title"),
    [
        ("  Given \n title ", [Heading(1, 1, "Own")], "k.pdf", "Given title"),
        (None, [Heading(1, 1, "Own")], "k.pdf", "Own"),
        (None, [Heading(1, 2, "Own")], "reports/2022 report.pdf", "2022 report"),
        (None, [Heading(3, 1, "Only")], "k.rst", "Only"),
        (None, [Heading(3, 1, "One"), Heading(4, 1, "Two")], "C:\\files\\plan.docx", "plan"),
        (" ", [], "https://example.org/a/b/", "b"),
    ],
)
def test_the_title_is_given_or_found_or_the_key(
    given: str | None, headings: list[Heading], key: str, title: str
) -> None:
    assert assemble([one_page("\nabc", *headings)], given, key).outline.title == title


def test_a_missing_page_keeps_its_place() -> None:
    shards = [
        ExtractedShard((ExtractedPage(1, "one\n"),)),
        ExtractedShard((ExtractedPage(3, "three\n"),), {2: "broken"}),
    ]
    document = assemble(shards, None, "key")
    assert [(page.number, page.start, page.end) for page in document.outline.pages] == [
        (1, 0, 4),
        (2, 4, 4),
        (3, 4, 10),
    ]
    assert document.missing == {2: "broken"}
    assert [(chunk.page_start, chunk.page_end) for chunk in document.chunks] == [(1, 3)]


def test_headers_name_title_and_path_once_and_stay_short() -> None:
    assert header("T", ()) == "T"
    assert header("T", ("T", "A", "B")) == "T\nA > B"
    long = header("t" * 500, ("a" * 150, "b" * 150, "c"))
    assert long == "t" * 120 + "\n" + "b" * 150 + " > c"


def test_chunk_ids_depend_on_document_revision_place_and_text() -> None:
    first, second = assemble([one_page("same words. " * 100)], None, "key").chunks[:2]
    ids = {chunk_id("d", 1, first), chunk_id("d", 2, first), chunk_id("e", 1, first), chunk_id("d", 1, second)}
    assert len(ids) == 4
    assert chunk_id("d", 1, first) == chunk_id("d", 1, first)
