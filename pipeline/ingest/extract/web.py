r"""HTML and XHTML: the visible text in reading order.

Blocks are separated by a blank line, lines of a block by a newline, table cells by `` | ``. What no reader reads is
left out: scripts, styles, navigation, form controls, hidden elements, ruby glosses, permalink signs. White space
collapses as in a browser, except in ``pre``.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from lxml import etree

from pipeline.errors import DocumentError
from pipeline.ingest.decode import decode, normalize_newlines
from pipeline.ingest.extract import tree
from pipeline.ingest.extract.flow import Flow
from pipeline.ingest.extract.text import one_page, read_bytes
from pipeline.ingest.extract.tree import Element, walk
from pipeline.models import ExtractedShard

_HEAD_BYTES = 64 * 1024
_CHARSET = re.compile(
    rb"<meta\b[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml\b[^>]*?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE
)
_TITLE = re.compile(r"<title\b[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_SKIPPED = frozenset(
    [
        "head",
        "script",
        "style",
        "template",
        "noscript",
        "nav",
        "svg",
        "canvas",
        "iframe",
        "object",
        "embed",
        "audio",
        "video",
        "map",
        "annotation",
        "annotation-xml",
        "button",
        "select",
        "textarea",
        "input",
        "datalist",
        "rt",
        "rp",
    ]
)
_PARAGRAPHS = frozenset(
    [
        "p",
        "ul",
        "ol",
        "dl",
        "table",
        "blockquote",
        "pre",
        "figure",
        "section",
        "article",
        "main",
        "header",
        "footer",
        "aside",
        "form",
        "fieldset",
        "details",
        "address",
        "hr",
        "center",
    ]
)
_LINES = frozenset(
    ["div", "li", "tr", "dt", "dd", "br", "caption", "figcaption", "summary", "legend", "thead", "tbody", "tfoot"]
)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_PERMALINK_SIGNS = frozenset("¶#§🔗")
_BLOCKS_IN_LAYOUT_CELLS = ("table", "ul", "ol", "dl", "pre", "blockquote", *_HEADINGS)


def extract(path: Path) -> ExtractedShard:
    """Raises DocumentError (`unsupported_type`, `broken_html`)."""
    root = parse(read_html(path))
    writer = _Writer()
    if root is not None:
        walk(root, writer.enter, writer.leave)
    return one_page(writer.flow.text(), writer.flow.headings())


def read_html(path: Path) -> str:
    data = read_bytes(path)
    declared = _CHARSET.search(data[:_HEAD_BYTES])
    encoding = (declared[1] or declared[2]).decode("ascii", errors="ignore") if declared else None
    return normalize_newlines(decode(data, encoding))


def find_title(source: str) -> str | None:
    found = _TITLE.search(source[:_HEAD_BYTES])
    return " ".join(html.unescape(found[1]).split()) or None if found else None


def parse(source: str) -> Element | None:
    """The root element; raises DocumentError `broken_html` where libxml2 gives up.

    `huge_tree` lifts libxml2's nesting limit from 256, which real pages with unclosed tags pass, to 2048. HTML has no
    entities to expand; memory and time are bounded by the process this runs in.
    """
    parser = etree.HTMLParser(encoding="utf-8", no_network=True, remove_comments=True, remove_pis=True, huge_tree=True)
    try:
        return tree.parse(source.encode(), parser)
    except etree.LxmlError as error:
        raise DocumentError(f"The HTML can't be parsed: {error}.", code="broken_html") from error


class _Writer:
    """Writes one page's elements into a flow. The text after an element (its tail) belongs to its parent."""

    def __init__(self) -> None:
        self.flow = Flow()

    def enter(self, element: Element) -> bool:
        if _is_invisible(element):
            return False
        tag = element.tag
        if tag in {"td", "th"}:
            self.flow.open_cell(is_layout=_is_layout(element))
        elif tag in _HEADINGS:
            self.flow.open_heading(_HEADINGS[tag])
        else:
            _break(element, self.flow)
        if tag == "pre":
            self.flow.open_verbatim()
        self.flow.write(element.text)
        return True

    def leave(self, element: Element) -> None:
        if not _is_invisible(element):
            self._close(element)
        self.flow.write(element.tail)

    def _close(self, element: Element) -> None:
        tag = element.tag
        if tag == "pre":
            self.flow.close_verbatim()
        if tag in {"td", "th"}:
            self.flow.close_cell()
        elif tag in _HEADINGS:
            self.flow.close_heading()
        elif tag != "br":
            _break(element, self.flow)


def _break(element: Element, flow: Flow) -> None:
    if element.tag in _LINES:
        flow.break_line()
    elif element.tag in _PARAGRAPHS:
        parent = element.getparent()
        is_nested_list = element.tag in {"ul", "ol"} and parent is not None and parent.tag == "li"
        flow.break_line() if is_nested_list else flow.break_paragraph()


def _is_invisible(element: Element) -> bool:
    return (
        element.tag in _SKIPPED
        or element.get("hidden") is not None
        or element.get("role") == "navigation"
        or bool(_HIDDEN_STYLE.search(element.get("style") or ""))
        or _is_permalink(element)
    )


def _is_permalink(element: Element) -> bool:
    is_local = element.tag == "a" and (element.get("href") or "").startswith("#")
    return is_local and "".join(element.itertext()).strip() in _PERMALINK_SIGNS


def _is_layout(cell: Element) -> bool:
    """Whether a table cell holds a part of the page, not a value: then its blocks stay blocks."""
    return next(cell.iter(*_BLOCKS_IN_LAYOUT_CELLS), None) is not None or len(cell.findall("p")) > 1
