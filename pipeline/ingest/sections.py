"""Headings to sections.

A section reaches from its heading to the next one, whatever its level; its path are the titles above it and its own.
Sections tile the text. Two kinds are too small to stand alone and are joined to what follows:

* one with less than `MIN_SECTION_CHARACTERS`, when a section below it follows: the joined one has the lower path
  (a chapter's title right above its first section; a line or two before the first heading);
* a run of sections that are all that small: they are joined until they are large enough, under the titles that they
  share. A small section between two large ones stays as it is, so that a path is never wrong.

White space alone always joins its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pipeline.models import Heading, Section

MIN_SECTION_CHARACTERS = 200

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Draft:
    """`size` counts characters without the white space around them."""

    level: int
    path: Path
    start: int
    end: int
    size: int

    @property
    def is_small(self) -> bool:
        return self.size < MIN_SECTION_CHARACTERS


def make_sections(text: str, headings: Sequence[Heading]) -> tuple[Section, ...]:
    """Sections that tile `text`; `headings` have document offsets. The part before the first has the path ()."""
    drafts = _fold(_drafts(text, headings))
    return tuple(Section(index, d.level, d.path, d.start, d.end) for index, d in enumerate(drafts))


def _drafts(text: str, headings: Sequence[Heading]) -> Iterable[_Draft]:
    """One for each stretch between headings that isn't empty; of headings at one place the last one names it."""
    ordered = sorted(headings, key=lambda heading: heading.offset)
    starts = [0, *(heading.offset for heading in ordered)]
    ends = [*starts[1:], len(text)]
    above: list[Heading] = []
    for heading, start, end in zip([None, *ordered], starts, ends, strict=True):
        if heading:
            above = [*(other for other in above if other.level < heading.level), heading]
        if end > start:
            level = heading.level if heading else 0
            path = tuple(other.title for other in above)
            yield _Draft(level, path, start, end, len(text[start:end].strip()))


def _fold(drafts: Iterable[_Draft]) -> list[_Draft]:
    folded: list[_Draft] = []
    for draft in drafts:
        if folded and _belong_together(folded[-1], draft):
            folded[-1] = _join(folded[-1], draft)
        else:
            folded.append(draft)
    return folded


def _belong_together(before: _Draft, draft: _Draft) -> bool:
    if not before.size or not draft.size:
        return True
    return before.is_small and (draft.is_small or _is_below(draft, before))


def _join(before: _Draft, draft: _Draft) -> _Draft:
    """The lower path when one is above the other, else what they share; white space has no say."""
    if not draft.size or (before.size and not _is_below(draft, before)):
        path = before.path if not draft.size else _shared(before.path, draft.path)
        level = before.level if path == before.path else len(path)
    else:
        path, level = draft.path, draft.level
    return _Draft(level, path, before.start, draft.end, before.size + draft.size)


def _is_below(draft: _Draft, other: _Draft) -> bool:
    """Whether `draft` stands under `other`'s titles; everything stands under the part before the first heading."""
    return draft.path[: len(other.path)] == other.path


def _shared(one: Path, other: Path) -> Path:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(title for title, _ in same)
