"""A text that grows block by block; formats with structure but no text of their own are written through it."""

from __future__ import annotations

import re

from pipeline.models import Heading

_MAX_TITLE_CHARACTERS = 200
_SPACE = re.compile(r"[ \t\n\f\r]+")
#: What may stand between two pieces of text; the strongest that was asked for wins.
_JOINTS = ("", " ", " | ", "\n", "\n\n")
_BLANK, _CELL, _LINE, _PARAGRAPH = 1, 2, 3, 4


class Flow:
    """Collects text pieces and decides what stands between them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._joint = 0
        self._verbatim = 0
        self._cells: list[bool] = []
        self._level = 0
        self._heading_at: int | None = None
        self._headings: list[Heading] = []

    def text(self) -> str:
        return "".join(self._parts)

    def headings(self) -> tuple[Heading, ...]:
        return tuple(self._headings)

    @property
    def in_value_cell(self) -> bool:
        return bool(self._cells) and not self._cells[-1]

    def write(self, text: str | None) -> None:
        """Append text; white space collapses outside verbatim blocks."""
        if not text:
            return
        if self._verbatim:
            self._append(text)
            return
        words = _SPACE.sub(" ", text)
        if words.startswith(" "):
            self._join(_BLANK)
        if words != " ":
            self._append(words.strip(" "))
        if words.endswith(" "):
            self._join(_BLANK)

    def break_line(self) -> None:
        self._join(_BLANK if self.in_value_cell else _LINE)

    def break_paragraph(self) -> None:
        self._join(_BLANK if self.in_value_cell else _PARAGRAPH)

    def open_cell(self, *, is_layout: bool = False) -> None:
        """A layout cell holds blocks of its own; in a value cell line breaks are spaces."""
        self._join(_LINE if is_layout else _CELL)
        self._cells.append(is_layout)

    def close_cell(self) -> None:
        if self._cells.pop():
            self._join(_LINE)

    def open_verbatim(self) -> None:
        self._verbatim += 1

    def close_verbatim(self) -> None:
        self._verbatim -= 1

    def open_heading(self, level: int) -> None:
        self.break_paragraph()
        self._level = level
        self._heading_at = None

    def close_heading(self) -> None:
        if self._level and self._heading_at is not None:
            title = " ".join(self.text_from(self._heading_at).split())
            self._headings.append(Heading(self._heading_at, self._level, title[:_MAX_TITLE_CHARACTERS]))
        self._level = 0
        self.break_paragraph()

    def text_from(self, offset: int) -> str:
        """What was written since `offset`; cheap for recent offsets."""
        parts: list[str] = []
        start = self._length
        for part in reversed(self._parts):
            if start <= offset:
                break
            start -= len(part)
            parts.append(part)
        return "".join(reversed(parts))[offset - start :]

    def _join(self, joint: int) -> None:
        self._joint = max(self._joint, joint)

    def _append(self, text: str) -> None:
        if not text:
            return
        if self._parts:
            self._put(_JOINTS[self._joint])
        if self._level and self._heading_at is None:
            self._heading_at = self._length
        self._joint = 0
        self._put(text)

    def _put(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)
