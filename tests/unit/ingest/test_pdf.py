"""Page texts, headings and boxes of PDFs, on files made here and on FinanceBench."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pypdf
import pypdfium2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen import canvas

from pipeline.errors import DocumentError
from pipeline.ingest.extract import pdf
from pipeline.ingest.extract.pdf_boxes import to_display
from pipeline.ingest.extract.pdf_text import clean, origins
from pipeline.ingest.limits import ParserLimits
from pipeline.models import Box, Heading, MediaType, Probe
from tests.unit.ingest.files import FINANCEBENCH, ZOO, drawn_pdf, pdf_file, raw_pdf, write

LIMITS = ParserLimits()
RAW = st.text(st.sampled_from("ab \r\n\t\x02\x07\ufffe\uffff\ud800\U0002000b\u0301"), max_size=60)


def text_of(path: Path, number: int = 1) -> str:
    return pdf.extract(path, number, number).pages[0].text


def code_of(path: Path, limits: ParserLimits = LIMITS) -> str:
    with pytest.raises(DocumentError) as caught:
        pdf.probe(path, limits)
    return caught.value.code


def text_inside(path: Path, box: Box) -> str:
    """What pdfium finds inside a box, shrunk by a hair so that neighbours that only touch stay out."""
    with pypdfium2.PdfDocument(path) as document:
        page = document[box.page - 1]
        crop, rotation = page.get_bbox(), page.get_rotation()
        left, bottom, right, top = to_user_space((box.left, box.bottom, box.right, box.top), crop, rotation)
        inside = page.get_textpage().get_text_bounded(left + 0.1, bottom + 0.1, right - 0.1, top - 0.1)
    return str(inside)


def to_user_space(rect: tuple, crop: tuple, rotation: int) -> tuple:
    """The inverse of `to_display`: turn the rest of the full circle around the page as shown."""
    width, height = crop[2] - crop[0], crop[3] - crop[1]
    shown = (0.0, 0.0, width, height) if rotation in {0, 180} else (0.0, 0.0, height, width)
    left, bottom, right, top = to_display(rect, shown, (360 - rotation) % 360)
    return left + crop[0], bottom + crop[1], right + crop[0], top + crop[1]


def assert_located(path: Path, number: int, quote: str) -> tuple[Box, ...]:
    text = text_of(path, number)
    start = text.index(quote)
    boxes = pdf.locate(path, number, start, start + len(quote))
    found = "".join(text_inside(path, box) for box in boxes)
    assert "".join(found.split()) == "".join(quote.split())
    return boxes


@given(RAW)
def test_cleaned_text_has_one_origin_a_character_in_rising_order(raw: str) -> None:
    text, units = clean(raw), origins(raw)
    encoded = raw.encode("utf-16-le", errors="surrogatepass")
    assert len(units) == len(text)
    known = [unit for unit in units if unit >= 0]
    assert known == sorted(known)
    for character, unit in zip(text, units, strict=True):
        if character in "ab\u0301\t":
            assert encoded[2 * unit : 2 * unit + 2] == character.encode("utf-16-le")


@given(RAW)
def test_cleaned_text_is_fit_for_any_store(raw: str) -> None:
    text = clean(raw)
    text.encode()
    assert not any(character < " " and character not in "\n\t" for character in text)
    assert not text or text.endswith("\n")


def test_a_pdf_is_probed_and_read_page_by_page(tmp_path: Path) -> None:
    path = write(tmp_path, "a.pdf", drawn_pdf([["Hello world."], [], ["Third page.", "Second line."]], title="A Title"))
    assert pdf.probe(path, LIMITS) == Probe(MediaType.PDF, 3, "A Title")
    shard = pdf.extract(path, 2, 3)
    assert [(page.number, page.text) for page in shard.pages] == [(2, ""), (3, "Third page.\nSecond line.\n")]
    assert shard.missing == {}


@pytest.mark.parametrize("title", ["untitled", "report.docx", "Document1", "Microsoft Word - plan.doc"])
def test_titles_that_machines_made_are_no_titles(tmp_path: Path, title: str) -> None:
    assert pdf.probe(write(tmp_path, "a.pdf", drawn_pdf([["x"]], title=title)), LIMITS).title is None


def test_outline_entries_become_headings_at_their_titles(tmp_path: Path) -> None:
    pages = [["Preface text.", "Chapter  One", "see Chapter One"], ["Scope of it", "more"], ["nothing alike"]]
    outline = {0: [(0, "Chapter One")], 1: [(1, "1.1 Scope of It")], 2: [(0, "Elsewhere")]}
    path = write(tmp_path, "a.pdf", drawn_pdf(pages, outline=outline))
    shard = pdf.extract(path, 1, 3)
    text = shard.pages[0].text
    assert shard.pages[0].headings == (Heading(text.index("Chapter"), 1, "Chapter One"),)
    assert shard.pages[1].headings == (Heading(0, 2, "1.1 Scope of It"),)
    assert shard.pages[2].headings == (Heading(0, 1, "Elsewhere"),)


def test_a_changed_file_gets_its_new_outline(tmp_path: Path) -> None:
    path = write(tmp_path, "a.pdf", drawn_pdf([["One"]], outline={0: [(0, "One")]}))
    assert [heading.title for heading in pdf.extract(path, 1, 1).pages[0].headings] == ["One"]
    write(tmp_path, "a.pdf", drawn_pdf([["Two and more"]], outline={0: [(0, "Two and more")]}))
    assert [heading.title for heading in pdf.extract(path, 1, 1).pages[0].headings] == ["Two and more"]


def test_a_hyphen_at_a_line_end_is_shown_as_on_the_page(tmp_path: Path) -> None:
    path = write(tmp_path, "a.pdf", raw_pdf(b"BT /F1 12 Tf 20 200 Td (An inter-) Tj 0 -14 Td (national mill) Tj ET"))
    assert text_of(path) == "An inter-\nnational mill\n"
    boxes = assert_located(path, 1, "national mill")
    assert len(boxes) == 1
    assert len(pdf.locate(path, 1, 3, len("An inter-\nnational"))) == 2


def test_characters_that_no_store_takes_are_replaced_and_offsets_still_lead_to_glyphs(tmp_path: Path) -> None:
    cmap = b"4 beginbfchar <41> <D840DC0B> <42> <00660066> <43> <0007> <44> <D800> endbfchar"
    path = write(tmp_path, "a.pdf", raw_pdf(b"BT /F1 12 Tf 20 200 Td (xAyBzCwDvu) Tj ET", cmap=cmap))
    assert text_of(path) == "x\U0002000byffz w\ufffdvu\n"
    assert_located(path, 1, "vu")
    assert_located(path, 1, "x\U0002000by")


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_boxes_are_in_the_page_as_shown(tmp_path: Path, rotation: int) -> None:
    page = b"/MediaBox [0 0 300 400] /CropBox [50 100 250 350] /Rotate %d" % rotation
    path = write(tmp_path, "a.pdf", raw_pdf(b"BT /F1 12 Tf 60 120 Td (quoted words) Tj ET", page=page))
    (box,) = assert_located(path, 1, "quoted")
    with pypdfium2.PdfDocument(path) as document:
        width, height = document[0].get_size()
        image = document[0].render(scale=2, grayscale=True).to_numpy()
    assert 0 <= box.left < box.right <= width
    assert 0 <= box.bottom < box.top <= height
    rows = slice(int(2 * (height - box.top)), int(2 * (height - box.bottom)) + 1)
    inked = image[rows, int(2 * box.left) : int(2 * box.right) + 1]
    assert inked.min() < 64


def test_a_quote_over_two_lines_has_two_boxes_and_white_space_none(tmp_path: Path) -> None:
    path = write(tmp_path, "a.pdf", drawn_pdf([["The first line ends", "and the second begins."]]))
    assert len(assert_located(path, 1, "line ends\nand the")) == 2
    assert pdf.locate(path, 1, len("The first line ends"), len("The first line ends") + 1) == ()


def test_a_span_outside_the_page_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.pdf", drawn_pdf([["abc"]]))
    for number, start, end in ((2, 0, 1), (0, 0, 1), (1, 0, 99), (1, 2, 1)):
        with pytest.raises(DocumentError) as caught:
            pdf.locate(path, number, start, end)
        assert caught.value.code == "span_outside_page"


def test_filled_in_form_fields_are_text(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    drawing = canvas.Canvas(buffer, pagesize=A4)
    drawing.drawString(50, 700, "Name:")
    drawing.acroForm.textfield(name="name", x=100, y=690, value="Ada Lovelace")
    drawing.save()
    path = write(tmp_path, "form.pdf", buffer.getvalue())
    assert "Ada Lovelace" in text_of(path)
    assert_located(path, 1, "Name:")


def test_a_password_is_named_as_the_reason(tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(drawn_pdf([["secret"]])))
    writer.encrypt("user", "owner", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    assert code_of(tmp_path / "locked.pdf") == "password_protected"


def test_an_owner_password_alone_does_not_lock_the_text(tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(drawn_pdf([["open text"]])))
    writer.encrypt("", "owner", algorithm="RC4-128")
    writer.write(tmp_path / "open.pdf")
    assert text_of(tmp_path / "open.pdf") == "open text\n"


def test_broken_empty_and_too_long_pdfs_are_refused(tmp_path: Path) -> None:
    assert code_of(write(tmp_path, "broken.pdf", b"%PDF-1.7\nnot really")) == "broken_pdf"
    assert code_of(write(tmp_path, "none.pdf", pdf_without_pages())) == "zero_pages"
    assert code_of(write(tmp_path, "long.pdf", drawn_pdf([["x"]] * 3)), ParserLimits(max_pages=2)) == "too_many_pages"


def pdf_without_pages() -> bytes:
    return pdf_file([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"])


def test_the_reason_is_the_files_own_and_not_that_of_the_file_before(tmp_path: Path) -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(drawn_pdf([["secret"]])))
    writer.encrypt("user", "owner", algorithm="RC4-128")
    writer.write(tmp_path / "locked.pdf")
    assert code_of(tmp_path / "locked.pdf") == "password_protected"
    buffer = io.BytesIO()
    pypdf.PdfWriter().write(buffer)
    assert code_of(write(tmp_path, "none.pdf", buffer.getvalue())) == "zero_pages"


def test_a_page_that_fails_is_missing_and_the_others_are_there(tmp_path: Path) -> None:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R 9 0 R] /Count 2 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>",
    ]
    shard = pdf.extract(write(tmp_path, "a.pdf", pdf_file(objects)), 1, 2)
    assert [(page.number, page.text) for page in shard.pages] == [(1, ""), (2, "")]
    assert list(shard.missing) == [2]
    assert shard.missing[2]


def questions() -> list[dict]:
    source = FINANCEBENCH / "questions.jsonl"
    return [json.loads(line) for line in source.read_text().splitlines()] if source.exists() else []


@pytest.mark.shared_data
@pytest.mark.skipif(not FINANCEBENCH.exists(), reason="the measurement data is missing")
def test_evidence_of_financebench_is_on_its_page_and_its_boxes_give_it_back() -> None:
    evidence = [(q["doc"], item) for q in questions() for item in q["evidence"] if item["verified"]][::4]
    assert len(evidence) >= 5
    for document, item in evidence:
        path = FINANCEBENCH / "pdfs" / document
        assert pdf.probe(path, LIMITS).page_count == item["pages_in_pdf"]
        text = text_of(path, item["page"])
        words = re.findall(r"\w+", item["text"])
        assert sum(word in text for word in words) >= 0.98 * len(words)
        quotes = [line for line in map(str.strip, item["text"].splitlines()) if len(line) > 20 and line in text]
        assert quotes
        for quote in quotes[:3]:
            assert_located(path, item["page"], quote)


@pytest.mark.shared_data
@pytest.mark.skipif(not ZOO.exists(), reason="the measurement data is missing")
@pytest.mark.parametrize("name", ["pdf-rotated/rotation.pdf", "pdf-cjk/jo.pdf", "pdf-rtl/ArabicCIDTrueType.pdf"])
def test_every_line_of_rotated_vertical_and_arabic_pages_is_located(name: str) -> None:
    path = ZOO / "files" / name
    for page in pdf.extract(path, 1, 2).pages:
        for line in page.text.splitlines()[:6]:
            if line.strip():
                start = page.text.index(line)
                assert len(pdf.locate(path, page.number, start, start + len(line))) == 1
