"""What a command says: text for people, JSON for scripts, and the exit codes of both."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

import orjson
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

PIPE_COLUMNS = 10_000


class ExitCode(IntEnum):
    """0 done · 1 something failed · 2 wrong usage or request · 3 not reachable · 4 not found · 5 not allowed ·
    6 the name, port or data folder is taken · 7 the answer abstained · 130 interrupted.
    """  # noqa: D205 -- one table, also shown by `sourcemill --help`

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    UNAUTHORIZED = 5
    CONFLICT = 6
    ABSTAINED = 7
    INTERRUPTED = 130


class Output:
    """Standard output for results, standard error for remarks. With `as_json`, results are JSON and nothing else.

    Everything printed is taken as it is: a document's name can't change how the terminal shows it.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        # What is piped into another program is never folded to a terminal's width.
        self.console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else PIPE_COLUMNS)
        self.remarks = Console(stderr=True, highlight=False, soft_wrap=True)

    def data(self, record: Any) -> None:
        """A result; printed with `as_json` only. One line a call."""
        if self.as_json:
            sys.stdout.write(orjson.dumps(record).decode() + "\n")
            sys.stdout.flush()

    def event(self, text: str, **facts: Any) -> None:
        """Something that happened in a long-running command: `text`, or its `facts` as one JSON line."""
        self.line(text)
        self.data(facts)

    def line(self, text: str = "", style: str = "") -> None:
        if not self.as_json:
            self.console.print(Text(printable(text), style=style))

    def piece(self, text: str) -> None:
        """A part of a line, shown at once."""
        if not self.as_json:
            self.console.print(Text(printable(text)), end="")
            self.console.file.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.print(text_table(columns, rows))

    def print(self, what: RenderableType) -> None:
        if not self.as_json:
            self.console.print(what, soft_wrap=False)

    def remark(self, text: str, style: str = "") -> None:
        """For people in both modes: a warning, or why one file of many was left out."""
        self.remarks.print(Text(printable(text), style=style))


def text_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Plain cells: nothing in them is taken for markup. None is an empty cell."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable("" if cell is None else str(cell))) for cell in row))
    return table


def printable(text: str) -> str:
    """Without control characters: a document's text must not move the cursor or colour the terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else "�" for char in text)


def size(count: float) -> str:
    """Bytes in a unit that people read: `3.2 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:  # noqa: PLR2004 -- the step between binary units
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
