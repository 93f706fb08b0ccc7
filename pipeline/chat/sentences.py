"""Where sentences end: prose in any script, lists, headings and rows of tables.

Text out of a PDF breaks a sentence over several lines and a table into one line a row, so a line end
is a boundary only where one of the two lines is not running prose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from pipeline.models import Span

#: Lines shorter than this that end without punctuation are titles or cells, if a capital follows.
_TITLE_CHARS = 48

_END = re.compile(
    r"[.!?…]+[\"'”\u2019»)\]]*(?:\[\d{1,3}\])*(?=\s)"  # Latin: closing marks, notes, then white space
    r"|[。\uff01\uff1f\uff1b]+[”\u2019」』\uff09》]*"  # Chinese, Japanese: no white space needed
    r"|[।؟\u06d4།።]+(?=\s)"
    r"|\r\n|[\r\n\f\v\x1c-\x1e\x85\u2028\u2029]"
)
_LINE_END = re.compile(r"\r\n|[\r\n\f\v\x1c-\x1e\x85\u2028\u2029]")
_SPACE = re.compile(r"\s*")
_LAST_WORD = re.compile(r"[^\s(\[\"“]*$")
_NEXT = re.compile(r"\s*[\"'“\u2018«(\[]*([^\s\"'“\u2018«(\[])")
_LIST_ITEM = re.compile(r"\s*(?:[-*+•◦▪●■\u2013—·]\s|#{1,6}\s|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)]\s)")
_LIST_NUMBER = re.compile(r"\s*(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})\.$")
_CELL = re.compile(r"[-+(]?[$€£¥]?\s?\d[\d.,]*\)?\s?%?\)?|[-\u2013—]|[$€£¥%]")
#: A full stop after one of these never ends a sentence when a name, number or more text can follow.
_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|sr|jr|st|gen|rep|sen|gov|lt|col|capt|rev|hon|inc|corp"
    r"|ltd|co|bros|llc|plc|dept|univ|assn|vs|etc|al|eg|ie|cf|approx|est|no|nos|vol"
    r"|fig|figs|eq|sec|ch|pp|ed|eds|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov"
    r"|dec|mon|tue|wed|thu|fri|sat|sun|bzw|ca|usw|zb|nr|abs|art|av|bd|ff|vgl"
    r"|dsp|mm|mme|mlle"
)


def sentence_spans(text: str) -> list[Span]:
    """Spans that tile the text; white space belongs to the sentence before it. Linear in its length."""
    cuts = [0, *_cuts(text), len(text)]
    return [(start, end) for start, end in pairwise(cuts) if start < end]


def trimmed(text: str, span: Span) -> Span:
    """The span without white space at its ends; empty when there is nothing else."""
    start, end = span
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    return start + left, max(start + left, start + len(piece.rstrip()))


def is_row(line: str) -> bool:
    """Whether a line is a row of a table: cells with separators, or mostly numbers after a label."""
    if "\t" in line.strip() or line.count("|") > 1:
        return True
    words = line.split()
    cells = sum(1 for word in words if _CELL.fullmatch(word))
    has_digits = any(char.isdigit() for char in line)
    ends_in_cell = bool(words) and _CELL.fullmatch(words[-1]) is not None
    return has_digits and ends_in_cell and len(words) <= cells * (5 if cells > 1 else 3)


def _cuts(text: str) -> Iterator[int]:
    """Positions where a new sentence starts, rising."""
    start, line_start = 0, 0
    for match in _END.finditer(text):
        is_line_end = _LINE_END.fullmatch(match.group()) is not None
        line_start, line = (match.end(), text[line_start : match.start()]) if is_line_end else (line_start, "")
        if match.end() <= start:
            continue
        ends = _line_ends(text, line, match.end()) if is_line_end else _stop_ends(text, start, match)
        if ends:
            start = _after_space(text, match.end())
            yield start


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _line_ends(text: str, line: str, at: int) -> bool:
    """Whether the sentence ends with this line; `at` is where the next one starts."""
    following = _LINE_END.search(text, at)
    next_line = text[at : following.start() if following else len(text)]
    if not line.strip() or not next_line.strip() or line.lstrip().startswith("#"):
        return True
    if _LIST_ITEM.match(next_line) or is_row(line) or is_row(next_line):
        return True
    return len(line.strip()) < _TITLE_CHARS and _starts_new(next_line)


def _starts_new(line: str) -> bool:
    first = _NEXT.match(line)
    return first is not None and first.group(1).isupper()


def _stop_ends(text: str, sentence_start: int, stop: re.Match[str]) -> bool:
    """Whether a closing mark ends the sentence that began at `sentence_start`."""
    mark = stop.group()
    if mark[0] not in ".…":
        return True
    before = text[max(sentence_start, stop.start() - 24) : stop.start()]
    following = _NEXT.match(text, stop.end())
    if following is None:
        return True
    if following.group(1).islower():
        return False
    at_start = stop.start() - sentence_start < 8  # noqa: PLR2004  # "xviii." is the longest list number
    if at_start and _LIST_NUMBER.fullmatch(text[sentence_start : stop.start()] + "."):
        return False
    return not (mark[0] == "." and _is_abbreviation(before, mark))


def _is_abbreviation(before: str, mark: str) -> bool:
    found = _LAST_WORD.search(before)
    word = found.group() if found else ""
    if len(mark) > 1 and mark[1] == ".":
        return False
    is_initial = len(word) == 1 and word.isalpha() and word.isupper()
    has_stops = "." in word and all(len(part) <= 1 for part in word.split("."))
    return is_initial or has_stops or _ABBREVIATION.fullmatch(word.replace(".", "").lower()) is not None
