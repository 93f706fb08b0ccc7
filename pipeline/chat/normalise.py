"""Text in the form in which quotes are compared, with a way back to the text as it is.

What a reader would call the same text becomes the same string: compatibility forms and composed letters
(NFKC), ligatures, runs of white space, words broken at a line end, soft hyphens and other characters
without width, kinds of quotation marks and dashes. What a reader would call different stays different:
case, digits, signs, and also superscripts and fractions, which NFKC would turn into wrong numbers
(`10²` into `102`, `6½` into `61/2`).

The text is cut into units that normalise on their own (a character with its combining marks, a run of
white space), so every normalised character knows the source characters that it came from.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from dataclasses import dataclass
from functools import lru_cache

from pipeline.models import Span

#: UAX #15 "stream-safe text": no sane text has more marks on one character, and sorting them is quadratic.
MAX_MARKS = 30

CJK = "⺀-〿぀-ヿ㄀-ㇿ㐀-䶿一-鿿豈-﫿\U00020000-\U0003ffff"

_SOFT_HYPHEN = "\u00ad"
_WIDTHLESS = "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\u180e\u034f"
_TOKEN = re.compile(rf"[!-,.-_a-~]+(?: [!-,.-_a-~]+)*|[\s{_WIDTHLESS}]+|.", re.DOTALL)
_WIDTHLESS_CHAR = re.compile(f"[{_WIDTHLESS}]")
_HAS_SPACE = re.compile(r"\s")
_FOLDS = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013—―\u2212﹣\uff0d\ufe58", "-"),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2039\u203a\u2032`\u00b4\u02bc\uff07", "'"),
    **dict.fromkeys("“”„‟«»″\uff02", '"'),
    # What PDFium writes for a hyphen that only a line end made.
    **dict.fromkeys("\ufffe\x02", _SOFT_HYPHEN),
}
_LETTER = r"[^\W\d_]"
#: In text after the first pass: hyphens inside a word, a line break after a hyphen, soft hyphens elsewhere,
#: and white space beside Chinese or Japanese characters, where it only comes from line ends.
_DROPPED = re.compile(
    rf"(?<={_LETTER})[-{_SOFT_HYPHEN}]+ ?(?={_LETTER})|(?<=-) (?=\w)|{_SOFT_HYPHEN}+|(?<=[{CJK}]) | (?=[{CJK}])"
)


@dataclass(frozen=True, slots=True)
class Normalised:
    """`text[i]` came from `source[starts[i]:ends[i]]`; both rise with i."""

    text: str
    starts: array[int]
    ends: array[int]

    def source_span(self, start: int, end: int) -> Span | None:
        """The source span whose normalised form is `text[start:end]`.

        None when an end of it falls inside a unit: half a ligature or a letter without its accent.
        """
        if start >= end or self._splits(start) or self._splits(end):
            return None
        return self.starts[start], self.ends[end - 1]

    def _splits(self, at: int) -> bool:
        return 0 < at < len(self.text) and self.starts[at] < self.ends[at - 1]


def normalise(text: str) -> Normalised:
    """Linear in the length of the text."""
    return _without_dropped(_units(text))


def _units(text: str) -> Normalised:
    """The first pass: each unit folded by itself."""
    out: list[str] = []
    starts, ends = array("I"), array("I")
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        end = _unit_end(text, at, token.end()) if token else at + 1
        folded = _fold(text[at:end])
        plain = len(folded) == end - at and folded.isascii() and text[at:end].isascii()
        starts.extend(range(at, end) if plain else [at] * len(folded))
        ends.extend(range(at + 1, end + 1) if plain else [end] * len(folded))
        out.append(folded)
        at = end
    return Normalised("".join(out), starts, ends)


def _unit_end(text: str, start: int, end: int) -> int:
    """Where the unit ends: marks belong to the character before them, and a run leaves them its last one."""
    if end >= len(text) or not _attaches(text[end]) or _is_gap(text[start]):
        return end
    if end - start > 1:
        return end - 1
    limit = min(len(text), end + MAX_MARKS)
    while end < limit and _attaches(text[end]):
        end += 1
    return end


@lru_cache(maxsize=4096)
def _attaches(char: str) -> bool:
    """Whether NFKC may join a character with the one before it: marks, and the later parts of Hangul."""
    if char < "\u0300":
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    is_late_jamo = "\u1160" <= first <= "\u11ff"
    return (unicodedata.category(first)[0] == "M" or is_late_jamo) and not _is_gap(char)


def _is_gap(char: str) -> bool:
    return _WIDTHLESS_CHAR.match(char) is not None or char.isspace()


def _fold(unit: str) -> str:
    if _is_gap(unit[0]):
        return " " if _HAS_SPACE.search(unit) else ""
    if unit.isascii():
        return unit if len(unit) > 1 else _FOLDS.get(unit, unit)
    if len(unit) == 1:
        return _fold_char(unit)
    return _fold_all(unicodedata.normalize("NFKC", unit))


@lru_cache(maxsize=16384)
def _fold_char(char: str) -> str:
    if char in _FOLDS:
        return _FOLDS[char]
    is_subscript = "\u2080" <= char <= "\u2089"
    if unicodedata.category(char) == "No" and not is_subscript:
        return char
    return _fold_all(unicodedata.normalize("NFKC", char))


def _fold_all(text: str) -> str:
    return "".join(_FOLDS.get(char, char) for char in text)


def _without_dropped(units: Normalised) -> Normalised:
    """The second pass: what stands or falls with its neighbours."""
    out: list[str] = []
    starts, ends = array("I"), array("I")
    at = 0
    for dropped in _DROPPED.finditer(units.text):
        out.append(units.text[at : dropped.start()])
        starts.extend(units.starts[at : dropped.start()])
        ends.extend(units.ends[at : dropped.start()])
        at = dropped.end()
    if not at:
        return units
    out.append(units.text[at:])
    starts.extend(units.starts[at:])
    ends.extend(units.ends[at:])
    return Normalised("".join(out), starts, ends)
