"""Detection, decoding and extraction of the formats without pages, on files made here."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path

import docx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.errors import DocumentError
from pipeline.ingest.decode import decode
from pipeline.ingest.detect import detect
from pipeline.ingest.extract import extract_pages, probe, table
from pipeline.ingest.limits import ParserLimits
from pipeline.models import ExtractedPage, MediaType
from tests.unit.ingest.files import ZOO, drawn_pdf, package, write

HTML = "<!DOCTYPE html><html><head><title>A page</title></head><body><h1>Top</h1><p>Body.</p></body></html>"
DOCX_TYPES = '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def page_of(path: Path, media_type: MediaType) -> ExtractedPage:
    (page,) = extract_pages(path, media_type, 1, 1).pages
    assert page.number == 1
    return page


def titles(page: ExtractedPage) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in page.headings]


def at_headings(page: ExtractedPage) -> list[str]:
    """The text from each heading's offset, as long as its title."""
    return [page.text[heading.offset :][: len(heading.title)] for heading in page.headings]


def code_of(path: Path, name: str = "") -> str:
    with pytest.raises(DocumentError) as caught:
        probe(path, name or path.name, ParserLimits())
    return caught.value.code


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.md", "# Title\n\ntext", MediaType.MARKDOWN),
        ("a.txt", "# Title\n\ntext", MediaType.TEXT),
        ("noname", "plain words", MediaType.TEXT),
        ("a.rst", "Title\n=====\n", MediaType.TEXT),
        ("a.csv", "a,b\n1,2\n", MediaType.CSV),
        ("a.TSV", "a\tb\n1\t2\n", MediaType.CSV),
        ("a.html", HTML, MediaType.HTML),
        ("wrong.txt", HTML, MediaType.HTML),
        ("wrong.pdf", HTML, MediaType.HTML),
        ("commented.md", "<!-- a --> <!-- b -->\n<html><body>x</body></html>", MediaType.HTML),
        ("fragment.html", "<p>only a fragment</p>", MediaType.HTML),
        ("wrong.html", "no tag in here, 1 < 2", MediaType.TEXT),
        ("readme.md", '<p align="center">logo</p>\n\n# Title', MediaType.MARKDOWN),
        ("wrong.docx", "just text", MediaType.TEXT),
        ("x.xhtml", '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"/>', MediaType.HTML),
        ("wrong.csv", drawn_pdf([["x"]]), MediaType.PDF),
        ("preceded.pdf", b"\r\n \n" + drawn_pdf([["x"]]), MediaType.PDF),
        ("about.txt", "The header %PDF-1.7 opens a PDF.", MediaType.TEXT),
        ("wrong.pdf", package({"[Content_Types].xml": DOCX_TYPES, "word/document.xml": "<x/>"}), MediaType.DOCX),
    ],
)
def test_content_decides_and_the_name_only_breaks_ties(
    tmp_path: Path, name: str, content: bytes | str, media_type: MediaType
) -> None:
    assert detect(write(tmp_path, "file", content), name) is media_type


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (package({"xl/workbook.xml": ""}), "an Excel workbook"),
        (package({"a.txt": "text"}), "a ZIP archive"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "a PNG image"),
        (b"{\\rtf1 text}", "a rich text (RTF) document"),
        (bytes(range(256)) * 4, "binary data"),
        (b"text and then" + bytes(100), "binary data"),
        ("From: a@b.c\nTo: d@e.f\nMIME-Version: 1.0\n\nHello", "an e-mail message"),
    ],
)
def test_an_unsupported_file_is_refused_with_what_it_is(tmp_path: Path, content: bytes | str, found: str) -> None:
    with pytest.raises(DocumentError, match="Supported are PDF, HTML, Markdown") as caught:
        detect(write(tmp_path, "file.txt", content), "file.txt")
    assert caught.value.code == "unsupported_type"
    assert found in caught.value.message


def test_empty_vanished_and_oversized_files_are_refused(tmp_path: Path) -> None:
    assert code_of(write(tmp_path, "empty.txt", b"")) == "empty_file"
    assert code_of(tmp_path / "vanished.txt") == "unreadable_file"
    assert code_of(tmp_path) == "unreadable_file"
    path = write(tmp_path, "large.txt", "x" * 100)
    with pytest.raises(DocumentError, match="at most") as caught:
        probe(path, "large.txt", ParserLimits(max_bytes=99))
    assert caught.value.code == "too_large"


def test_encrypted_office_files_say_so(tmp_path: Path) -> None:
    content = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le")
    assert code_of(write(tmp_path, "a.docx", content)) == "password_protected"


CHINESE = "分布式数据库的每一行都会被复制到三个节点上这样就不会丢失数据。\n" * 5
RUSSIAN = "Однажды, в студёную зимнюю пору, я из лесу вышел; был сильный мороз.\n" * 3
SPANISH = "¿Cuántos años tardó el niño en volver? Volvió mañana, según él.\n" * 3


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (CHINESE, "utf-8"),
        (CHINESE, "utf-8-sig"),
        (CHINESE, "utf-16"),
        (CHINESE, "utf-32"),
        (CHINESE, "utf-16-le"),
        (CHINESE, "gb18030"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (SPANISH, "cp1252"),
        (SPANISH, "utf-16-be"),
        ("それのいろいろの論料といっしょに、記録や歴史もわたくしと明滅し。\n" * 5, "shift_jis"),
        ("それのいろいろの論料といっしょに、記録や歴史もわたくしと明滅し。\n" * 5, "iso2022_jp"),
    ],
)
def test_text_is_read_in_its_encoding(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


def test_a_declared_encoding_counts_unless_the_bytes_are_utf8() -> None:
    assert decode("naïve — “x”".encode("cp1252"), "iso-8859-1") == "naïve — “x”"
    assert decode("naïve".encode(), "iso-8859-1") == "naïve"
    assert decode("naïve".encode("cp1252"), "no-such-encoding").startswith("na")


def test_utf8_with_a_damaged_byte_stays_utf8() -> None:
    data = RUSSIAN.encode() * 20
    assert decode(data[:2001] + b"\xff" + data[2001:]).count("\ufffd") <= 2
    assert "студёную" in decode(data + b"\xff")


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=400))
def test_any_bytes_decode_to_text_or_are_refused(data: bytes) -> None:
    try:
        text = decode(data)
    except DocumentError:
        return
    text.encode()
    assert "\x00" not in text


@pytest.mark.shared_data
@pytest.mark.skipif(not ZOO.exists(), reason="the measurement data is missing")
def test_transcoded_texts_equal_their_truth() -> None:
    folder = ZOO / "transcoded"
    wrong = []
    for source in folder.iterdir():
        truth = next(folder.glob(f"{source.name.removesuffix('.txt')}.truth.*"), None)
        if truth and ".truth" not in source.name and decode(source.read_bytes()) != truth.read_text("utf-8-sig"):
            wrong.append(source.name)
    assert wrong == []


def test_html_keeps_reading_order_and_leaves_out_what_nobody_reads(tmp_path: Path) -> None:
    source = """<html><head><title>T &amp; U</title><style>p{}</style></head><body>
    <nav><a href="/">Home</a></nav><script>alert(1)</script>
    <h1>Main<a href="#main">¶</a></h1><p>First <b>bold</b>ly
      wrapped <a href="x">link</a>.</p><!-- comment --><p hidden>secret</p><p style="display: none">secret</p>
    <ul><li>one</li><li>two<ul><li>deep</li></ul></li></ul>
    <h2>Data</h2><table><tr><th>Year</th><th>Sales</th></tr><tr><td><p>2022</p></td><td>34,229<br>USD</td></tr></table>
    <pre>a
      b</pre>line<br>break &lt;tag&gt; &copy;</body></html>"""
    path = write(tmp_path, "a.html", source)
    page = page_of(path, MediaType.HTML)
    assert page.text == (
        "Main\n\nFirst boldly wrapped link.\n\none\ntwo\ndeep\n\nData\n\nYear | Sales\n2022 | 34,229 USD\n\n"
        "a\n      b\n\nline\nbreak <tag> ©"
    )
    assert titles(page) == [(1, "Main"), (2, "Data")]
    assert at_headings(page) == ["Main", "Data"]
    assert probe(path, "a.html", ParserLimits()).title == "T & U"


def test_a_layout_table_keeps_its_blocks_apart(tmp_path: Path) -> None:
    source = "<html><table><tr><td><h2>Left</h2><p>one</p><p>two</p></td><td>side</td></tr></table></html>"
    page = page_of(write(tmp_path, "a.html", source), MediaType.HTML)
    assert page.text == "Left\n\none\n\ntwo\n\nside"
    assert titles(page) == [(2, "Left")]


def test_html_reads_the_charset_that_it_declares(tmp_path: Path) -> None:
    source = f'<html><head><meta charset="windows-1251"></head><body>{RUSSIAN}</body></html>'.encode("cp1251")
    assert page_of(write(tmp_path, "a.html", source), MediaType.HTML).text == RUSSIAN.replace("\n", " ").strip()


def test_xhtml_with_an_xml_declaration_and_an_entity_is_read(tmp_path: Path) -> None:
    source = (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html [<!ENTITY leak SYSTEM "file:///etc/hostname">]>'
        "<html><body><p>before &leak; after</p></body></html>"
    )
    text = page_of(write(tmp_path, "a.xhtml", source), MediaType.HTML).text
    assert "before" in text
    assert "after" in text
    assert Path("/etc/hostname").read_text().strip() not in text


def test_deep_html_is_read_and_absurdly_deep_html_is_refused(tmp_path: Path) -> None:
    deep = write(tmp_path, "deep.html", f"<html>{'<div>' * 1500}core{'</div>' * 1500}<p>after</p></html>")
    assert page_of(deep, MediaType.HTML).text == "core\n\nafter"
    absurd = write(tmp_path, "absurd.html", f"<html>{'<div>' * 50_000}core")
    with pytest.raises(DocumentError) as caught:
        page_of(absurd, MediaType.HTML)
    assert caught.value.code == "broken_html"


def test_markdown_text_is_the_source_and_headings_are_only_real_ones(tmp_path: Path) -> None:
    source = (
        '---\ntitle: "Front title"\n---\n\nIntro\n\n# Top `code` *x*\r\n\ntext\n\n```\n# not a heading\n```\n\n'
        "Second\n======\n\n> # quoted\n\n- # listed\n\n### Third ###\n\nend"
    )
    path = write(tmp_path, "a.md", source)
    page = page_of(path, MediaType.MARKDOWN)
    assert page.text == source.replace("\r\n", "\n")
    assert titles(page) == [(1, "Top code x"), (1, "Second"), (3, "Third")]
    assert [page.text[heading.offset :][:6] for heading in page.headings] == ["# Top ", "Second", "### Th"]
    assert probe(path, "a.md", ParserLimits()).title == "Front title"


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("# A *title* #\n\ntext", "A title"),
        ("\n<!-- licence\n -->\n\n# Title\n", "Title"),
        ("text\n\n# Later\n", None),
        ("```\n# code\n```\n", None),
        ("---\nlayout: x\n---\n# Title\n", "Title"),
    ],
)
def test_a_markdown_title_is_the_heading_that_opens_it(tmp_path: Path, source: str, title: str | None) -> None:
    assert probe(write(tmp_path, "a.md", source), "a.md", ParserLimits()).title == title


def test_plain_text_is_kept_and_underlined_titles_are_headings(tmp_path: Path) -> None:
    source = (
        "=====\nTitle\n=====\n\nPart one\n--------\ntext\n-----\nnot\r\n\r\nSub\n~~~\n\nPart two\n--------\n\n"
        "| a | b |\n---------\n\n1 2\n3 4\n"
    )
    page = page_of(write(tmp_path, "a.rst", source), MediaType.TEXT)
    assert page.text == source.replace("\r\n", "\n")
    assert titles(page) == [(1, "Title"), (2, "Part one"), (3, "Sub"), (2, "Part two")]
    assert at_headings(page) == ["Title", "Part one", "Sub", "Part two"]


def test_asciidoc_titles_are_headings(tmp_path: Path) -> None:
    page = page_of(
        write(tmp_path, "a.adoc", "= Top\n\n== Part\n\n----\na longer line\n----\na == b\n=== tight\n"), MediaType.TEXT
    )
    assert titles(page) == [(1, "Top"), (2, "Part")]


def word_file(tmp_path: Path) -> Path:
    document = docx.Document()
    document.core_properties.title = "Properties title"
    document.add_heading("The Title", 0)
    document.add_paragraph("Opening words.")
    document.add_heading("Part", 1)
    document.add_paragraph("first", style="List Bullet")
    document.add_paragraph("second", style="List Bullet")
    cells = document.add_table(2, 2).rows
    for row, values in zip(cells, (("Year", "Sales"), ("2022", "34,229")), strict=True):
        for cell, value in zip(row.cells, values, strict=True):
            cell.text = value
    document.add_heading("Sub part", 2)
    paragraph = document.add_paragraph("split ")
    paragraph.add_run("ru").bold = True
    paragraph.add_run("ns\tand tab")
    document.sections[0].header.paragraphs[0].text = "running header"
    document.sections[0].footer.paragraphs[0].text = "running footer"
    document.save(str(tmp_path / "a.docx"))
    return tmp_path / "a.docx"


def test_docx_keeps_order_headings_lists_and_tables(tmp_path: Path) -> None:
    path = word_file(tmp_path)
    page = page_of(path, MediaType.DOCX)
    assert page.text == (
        "The Title\n\nOpening words.\n\nPart\n\nfirst\n\nsecond\n\nYear | Sales\n2022 | 34,229\n\nSub part\n\n"
        "split runs and tab"
    )
    assert titles(page) == [(1, "The Title"), (2, "Part"), (3, "Sub part")]
    assert at_headings(page) == ["The Title", "Part", "Sub part"]
    assert probe(path, "a.docx", ParserLimits()).title == "Properties title"


def bare_docx(body: str, styles: str = "", prolog: str = "") -> bytes:
    parts = {"[Content_Types].xml": DOCX_TYPES, "word/document.xml": f"{prolog}<w:document {WORD}>{body}</w:document>"}
    return package(parts | ({"word/styles.xml": f"<w:styles {WORD}>{styles}</w:styles>"} if styles else {}))


def test_docx_leaves_out_deleted_text_and_field_codes_and_follows_style_bases(tmp_path: Path) -> None:
    styles = (
        '<w:style w:styleId="H"><w:name w:val="heading 2"/></w:style>'
        '<w:style w:styleId="Own"><w:name w:val="Mine"/><w:basedOn w:val="H"/></w:style>'
    )
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Own"/></w:pPr><w:r><w:t>Based</w:t></w:r></w:p>'
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins>"
        "<w:r><w:instrText>PAGE</w:instrText></w:r><w:r><w:noBreakHyphen/><w:t>ly</w:t></w:r></w:p>"
    )
    page = page_of(write(tmp_path, "a.docx", bare_docx(body, styles)), MediaType.DOCX)
    assert page.text == "Based\n\nnew-ly"
    assert titles(page) == [(2, "Based")]


def test_broken_hostile_and_bomb_docx_are_refused(tmp_path: Path) -> None:
    whole = word_file(tmp_path).read_bytes()
    entity = '<!DOCTYPE x [<!ENTITY leak SYSTEM "file:///etc/passwd">]>'
    cases = {
        "broken_docx": [
            whole[: len(whole) // 2],
            bare_docx("<w:p>"[:-1]),
            bare_docx("<w:p><w:r><w:t>&leak;</w:t></w:r></w:p>", prolog=entity),
            package({"word/other.xml": "<x/>"}),
        ],
        "archive_bomb": [
            bare_docx(f"<w:p>{' ' * 20_000_000}</w:p>"),
            package({f"word/{n}": "" for n in range(10_001)}),
        ],
    }
    for code, contents in cases.items():
        for content in contents:
            with pytest.raises(DocumentError) as caught:
                extract_pages(write(tmp_path, "bad.docx", content), MediaType.DOCX, 1, 1)
            assert caught.value.code == code


def test_a_csv_record_names_its_columns_and_keeps_its_cells(tmp_path: Path) -> None:
    source = 'name;note;year\n"Ada; L.";"said ""hi""\nand left";1843\nBob;;1901\n'
    page = page_of(write(tmp_path, "a.csv", source), MediaType.CSV)
    assert (
        page.text
        == 'name | note | year\n\nname: Ada; L.; note: said "hi"\nand left; year: 1843\n\nname: Bob; year: 1901'
    )


def test_a_csv_without_a_header_row_is_joined(tmp_path: Path) -> None:
    page = page_of(write(tmp_path, "a.csv", "1,2.5,x\n2,3.5,y\n"), MediaType.CSV)
    assert page.text == "1 | 2.5 | x\n\n2 | 3.5 | y"


CELLS = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=8), st.sampled_from(",;\t|"))
@example([["", "", "0|"], ["", "|", "|"]], ",")
def test_every_csv_cell_stands_verbatim_in_the_text(rows: list[list[str]], delimiter: str) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    text = table.render(buffer.getvalue())
    assert all(cell.strip() in text for row in rows for cell in row)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", codecs.BOM_UTF8 + b"text")
    assert page_of(path, MediaType.TEXT).text == "text"
