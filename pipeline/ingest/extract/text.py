r"""Plain text: the file's own text with newlines as ``\n``, and the section titles that it marks itself.

Recognised are titles underlined with one punctuation character (reStructuredText, old AsciiDoc, READMEs) and
AsciiDoc's ``== Title`` lines. Both must stand free: a blank line, an overline or the file's start is above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import DocumentError
from pipeline.ingest.decode import decode, normalize_newlines
from pipeline.models import ExtractedPage, ExtractedShard, Heading

MAX_TITLE_CHARACTERS = 120
#: An underline may be this much shorter than its title (AsciiDoc's tolerance).
_UNDERLINE_TOLERANCE = 2
_ADORNMENT = re.compile(r"^([=\-~^\"'`#*+:.<>_])\1{2,}[ \t]*$", re.MULTILINE)
_ASCIIDOC = re.compile(r"^(={1,6}) (\S[^\n]*?)(?: =+)?[ \t]*$", re.MULTILINE)


def read_bytes(path: Path) -> bytes:
    """Raises DocumentError `unreadable_file`, as when the file vanished."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DocumentError(f"The file can't be read: {error.strerror}.", code="unreadable_file") from error


def read_text(path: Path) -> str:
    r"""The decoded file with newlines as ``\n``. Raises DocumentError (`unsupported_type`, `unreadable_file`)."""
    return normalize_newlines(decode(read_bytes(path)))


def one_page(text: str, headings: tuple[Heading, ...] = ()) -> ExtractedShard:
    """A format without pages is one page with number 1."""
    return ExtractedShard((ExtractedPage(1, text, headings),))


def extract(path: Path) -> ExtractedShard:
    text = read_text(path)
    return one_page(text, find_headings(text))


def find_headings(text: str) -> tuple[Heading, ...]:
    """Underlined titles get levels in the order in which their adornments first appear, as in reStructuredText."""
    levels: dict[str, int] = {}
    headings = [
        Heading(offset, levels.setdefault(style, len(levels) + 1), title) for offset, style, title in _underlined(text)
    ]
    headings += [
        Heading(match.start(), len(match[1]), match[2])
        for match in _ASCIIDOC.finditer(text)
        if len(match[2]) <= MAX_TITLE_CHARACTERS and not _line_before(text, match.start())[1].strip()
    ]
    return tuple(sorted(headings, key=lambda heading: heading.offset))


def _underlined(text: str) -> Iterator[tuple[int, str, str]]:
    """(offset, style, title); a style is the adornment's character, twice when the title is also overlined."""
    for match in _ADORNMENT.finditer(text):
        offset, title = _line_before(text, match.start())
        if not _is_title(title, len(match[0].rstrip())):
            continue
        above_offset, above = _line_before(text, offset)
        if not above.strip():
            yield offset, match[1], title.strip()
        elif set(above.rstrip()) == {match[1]} and not _line_before(text, above_offset)[1].strip():
            yield offset, match[1] * 2, title.strip()


def _is_title(line: str, underline: int) -> bool:
    title = line.strip()
    return (
        0 < len(title) <= min(MAX_TITLE_CHARACTERS, underline + _UNDERLINE_TOLERANCE)
        and title[0] not in ".[|"
        and not _ADORNMENT.fullmatch(title)
        and line[0] != "\t"
    )


def _line_before(text: str, start: int) -> tuple[int, str]:
    """Offset and text of the line above the one that starts at `start`; empty at the top."""
    if start == 0:
        return 0, ""
    offset = text.rfind("\n", 0, start - 1) + 1
    return offset, text[offset : start - 1]
