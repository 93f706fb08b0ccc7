r"""DOCX: paragraphs, lists and tables in document order, then foot- and endnotes.

Read straight from the parts of the package with lxml, so that nothing is loaded that isn't needed (pictures, themes)
and every part passes the size checks first. Paragraphs are separated by a blank line, table rows by a newline, cells
by `` | ``. Deleted text of tracked changes, field codes, comments, page headers and footers are left out.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from lxml import etree

from pipeline.errors import DocumentError
from pipeline.ingest.extract import tree
from pipeline.ingest.extract.flow import Flow
from pipeline.ingest.extract.text import one_page
from pipeline.ingest.extract.tree import Element, walk
from pipeline.ingest.limits import MIB
from pipeline.models import ExtractedShard

_MAX_ENTRIES = 10_000
_MAX_UNPACKED_BYTES = 1024 * MIB
_MAX_PART_BYTES = 64 * MIB
_MAX_RATIO = 200
#: Small parts of repeated markup reach any ratio and harm nobody.
_RATIO_APPLIES_FROM_BYTES = 8 * MIB
_ENCRYPTED_FLAG = 0x1

_MAX_STYLE_ANCESTORS = 20
_TITLE_LEVEL = 0
_HEADING_NAME = re.compile(r"heading ([1-9])$", re.IGNORECASE)
_SKIPPED = frozenset(
    [
        "del",
        "moveFrom",
        "delText",
        "instrText",
        "pPr",
        "rPr",
        "tblPr",
        "trPr",
        "tcPr",
        "sectPr",
        "Fallback",
        "object",
        "footnoteReference",
        "endnoteReference",
        "annotationRef",
    ]
)
_CHARACTERS = {"tab": " ", "noBreakHyphen": "-", "ptab": " "}


def extract(path: Path) -> ExtractedShard:
    """Raises DocumentError: `broken_docx`, `password_protected`, `archive_bomb`."""
    with _open(path) as package:
        main = _main_part(package)
        body = _part(package, main)
        if body is None:
            raise DocumentError("The DOCX has no document in it.", code="broken_docx")
        writer = _Writer(_style_levels(_part(package, _sibling(main, "styles.xml"))))
        writer.write(body)
        for notes in ("footnotes.xml", "endnotes.xml"):
            writer.write_notes(_part(package, _sibling(main, notes)))
    return one_page(writer.flow.text(), writer.flow.headings())


def find_title(path: Path) -> str | None:
    """The title in the document's properties. Raises as `extract` does, but reads only that part."""
    with _open(path) as package:
        properties = _part(package, "docProps/core.xml")
    if properties is None:
        return None
    title = next((element.text for element in properties if _local(element) == "title"), None)
    return " ".join((title or "").split()) or None


class _Writer:
    """Writes one document's parts into a flow. Levels move down by one below a paragraph in the style Title."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        self.flow = Flow()
        self._levels = levels
        self._shift = 0

    def write(self, root: Element) -> None:
        styles = (_attribute(element, "val") for element in root.iter("{*}pStyle"))
        self._shift = 1 if any(self._levels.get(style) == _TITLE_LEVEL for style in styles) else 0
        walk(root, self._enter, self._leave)

    def write_notes(self, root: Element | None) -> None:
        for note in () if root is None else root:
            if not _attribute(note, "type"):
                self.flow.break_paragraph()
                walk(note, self._enter, self._leave)

    def _enter(self, element: Element) -> bool:
        name = _local(element)
        if name == "t":
            self.flow.write(element.text)
        elif name in _CHARACTERS:
            self.flow.write(_CHARACTERS[name])
        elif name == "tc":
            self.flow.open_cell(is_layout=next(element.iter("{*}tbl"), None) is not None)
        elif name == "p" and (level := self._level(element)):
            self.flow.open_heading(level)
        else:
            self._break(name)
        return name not in _SKIPPED

    def _leave(self, element: Element) -> None:
        name = _local(element)
        if name == "tc":
            self.flow.close_cell()
        elif name == "p" and self._level(element):
            self.flow.close_heading()
        elif name not in {"br", "cr"}:
            self._break(name)

    def _break(self, name: str) -> None:
        if name in {"p", "tbl"}:
            self.flow.break_paragraph()
        elif name in {"tr", "br", "cr"}:
            self.flow.break_line()

    def _level(self, paragraph: Element) -> int:
        """The heading level of a paragraph outside tables, 0 for body text."""
        properties = paragraph.find("{*}pPr")
        if properties is None or self.flow.in_value_cell:
            return 0
        own = properties.find("{*}outlineLvl")
        if own is not None:
            return _outline_level(own) + self._shift if _outline_level(own) else 0
        style = properties.find("{*}pStyle")
        level = self._levels.get(_attribute(style, "val")) if style is not None else None
        return 0 if level is None else level + self._shift


@contextmanager
def _open(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as package:
            _check(package)
            yield package
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise DocumentError(f"The DOCX is damaged: {error}.", code="broken_docx") from error
    except etree.LxmlError as error:
        raise DocumentError(f"The DOCX has damaged XML in it: {error}.", code="broken_docx") from error
    except OSError as error:
        raise DocumentError(f"The file can't be read: {error}.", code="unreadable_file") from error


def _check(package: zipfile.ZipFile) -> None:
    """Entry, size and ratio caps, before anything is unpacked."""
    entries = package.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if len(entries) > _MAX_ENTRIES or unpacked > _MAX_UNPACKED_BYTES:
        message = f"The DOCX unfolds into {len(entries):,} parts of {unpacked:,} bytes, which is over the limits."
        raise DocumentError(message, code="archive_bomb")
    for entry in entries:
        too_dense = entry.file_size > _MAX_RATIO * max(entry.compress_size, 1)
        if too_dense and entry.file_size > _RATIO_APPLIES_FROM_BYTES:
            raise DocumentError(f"A part of the DOCX unfolds more than {_MAX_RATIO} times.", code="archive_bomb")
        if entry.flag_bits & _ENCRYPTED_FLAG:
            raise DocumentError("The DOCX is encrypted.", code="password_protected")


def _part(package: zipfile.ZipFile, name: str) -> Element | None:
    """A part's root element, None when the package lacks it. Entities are neither expanded nor fetched."""
    try:
        entry = package.getinfo(name)
    except KeyError:
        return None
    if entry.file_size > _MAX_PART_BYTES:
        raise DocumentError(f"The part {name} is larger than {_MAX_PART_BYTES // MIB} MiB.", code="archive_bomb")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True, remove_pis=True
    )
    root = tree.parse(package.read(entry), parser)
    if root is not None and root.getroottree().docinfo.doctype:
        raise DocumentError("The DOCX declares a document type, which no DOCX needs.", code="broken_docx")
    return root


def _main_part(package: zipfile.ZipFile) -> str:
    relations = _part(package, "_rels/.rels")
    for relation in () if relations is None else relations:
        if (relation.get("Type") or "").endswith("/officeDocument"):
            return str(relation.get("Target") or "").lstrip("/")
    return "word/document.xml"


def _sibling(part: str, name: str) -> str:
    return str(PurePosixPath(part).with_name(name))


def _style_levels(styles: Element | None) -> dict[str, int]:
    """Heading level by style id, `_TITLE_LEVEL` for the document's title; a style inherits from its base."""
    levels: dict[str, int] = {}
    bases: dict[str, str] = {}
    for style in () if styles is None else styles.iterfind("{*}style"):
        identifier = _attribute(style, "styleId")
        bases[identifier] = _attribute(style.find("{*}basedOn"), "val")
        level = _own_level(style)
        if level is not None:
            levels[identifier] = level
    return levels | {style: levels[base] for style in bases if (base := _leveled_base(style, bases, levels))}


def _own_level(style: Element) -> int | None:
    name = _attribute(style.find("{*}name"), "val")
    if name.lower() == "title":
        return _TITLE_LEVEL
    heading = _HEADING_NAME.match(name)
    if heading:
        return int(heading[1])
    outline = style.find("{*}pPr/{*}outlineLvl")
    return _outline_level(outline) or None if outline is not None else None


def _leveled_base(style: str, bases: Mapping[str, str], levels: Mapping[str, int]) -> str:
    for _ in range(_MAX_STYLE_ANCESTORS):
        if style in levels or not style:
            break
        style = bases.get(style, "")
    return style


def _outline_level(element: Element) -> int:
    """1 to 9; 0 for body text, which WordprocessingML writes as 9 (ISO 29500-1, 17.3.1.20)."""
    value = _attribute(element, "val")
    return int(value) + 1 if value in {"0", "1", "2", "3", "4", "5", "6", "7", "8"} else 0


def _local(element: Element) -> str:
    """The name without its namespace; the transitional and the strict flavour differ only there."""
    return str(element.tag).rpartition("}")[2]


def _attribute(element: Element | None, name: str) -> str:
    if element is None:
        return ""
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")
