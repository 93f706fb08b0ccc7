"""Boxes of characters on a page as a reader sees it: cropped and rotated, origin at its bottom left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pypdfium2
import pypdfium2.raw as pdfium

from pipeline.models import Box

#: left, bottom, right, top in points.
Rect = tuple[float, float, float, float]


def text_boxes(text_page: pypdfium2.PdfTextPage, number: int, quote: str, units: Sequence[int]) -> tuple[Box, ...]:
    """One box a line of `quote`, whose characters stand at pdfium's text indices `units` (-1: nowhere)."""
    page = text_page.page
    crop, rotation = page.get_bbox(), page.get_rotation()
    lines = _lines(text_page, quote, units)
    return tuple(Box(number, *to_display(_union(line), crop, rotation)) for line in lines)


def to_display(rect: Rect, crop: Rect, rotation: int) -> Rect:
    """From PDF user space to the page as shown; `rotation` is clockwise, in degrees (ISO 32000-1, 7.7.3.3)."""
    left, bottom, right, top = rect
    crop_left, crop_bottom, crop_right, crop_top = crop
    turned = {
        0: (left - crop_left, bottom - crop_bottom, right - crop_left, top - crop_bottom),
        90: (bottom - crop_bottom, crop_right - right, top - crop_bottom, crop_right - left),
        180: (crop_right - right, crop_top - top, crop_right - left, crop_top - bottom),
        270: (crop_top - top, left - crop_left, crop_top - bottom, right - crop_left),
    }
    return turned[rotation]


def _lines(text_page: pypdfium2.PdfTextPage, quote: str, units: Sequence[int]) -> Iterator[list[Rect]]:
    """Tight boxes, grouped by pdfium's own line ends and by jumps that it did not mark as such."""
    line: list[Rect] = []
    previous: Rect | None = None
    for character, unit in zip(quote, units, strict=True):
        if character == "\n":
            previous = None
        if character.isspace() or unit < 0:
            continue
        index = pdfium.FPDFText_GetCharIndexFromTextIndex(text_page, unit)
        loose = text_page.get_charbox(index, loose=True)
        if line and (previous is None or not _continues(previous, loose)):
            yield line
            line = []
        line.append(_tight(text_page, index) or loose)
        previous = loose
    if line:
        yield line


def _tight(text_page: pypdfium2.PdfTextPage, index: int) -> Rect | None:
    """The inked part of a glyph; None when it has none."""
    left, bottom, right, top = text_page.get_charbox(index)
    return (left, bottom, right, top) if right > left and top > bottom else None


def _continues(previous: Rect, current: Rect) -> bool:
    """Neighbours in a line share some height, in a column (vertical writing, turned text) some width."""
    return _overlap(previous, current, 1) or _overlap(previous, current, 0)


def _overlap(one: Rect, other: Rect, axis: int) -> bool:
    return one[axis] < other[axis + 2] and other[axis] < one[axis + 2]


def _union(rects: Iterable[Rect]) -> Rect:
    lefts, bottoms, rights, tops = zip(*rects, strict=True)
    return min(lefts), min(bottoms), max(rights), max(tops)
