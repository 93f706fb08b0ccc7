r"""The transform from pdfium's text of a page to ours, and its inverse.

======================================  ===================================================
pdfium                                  page text
======================================  ===================================================
CR LF, a lone CR                        ``\n``
U+FFFE or U+0002: a hyphen that ends    ``-\n``, what the page shows (pdfium joins the lines)
a line
other control characters but tab        one space
lone surrogates, noncharacters          U+FFFD
the end of a page with text             ``\n``, so that pages never glue words together
======================================  ===================================================

Everything else stays as it is. pdfium counts in UTF-16 units, we count in code points.
"""

from __future__ import annotations

import re

_SPECIAL = re.compile(
    "(?P<newline>\r\n?)|(?P<hyphen>[\ufffe\x02])|(?P<control>[\x00-\x08\x0b-\x1f\x7f-\x9f])"
    "|(?P<invalid>[\ud800-\udfff\ufdd0-\ufdef\uffff])"
)
_REPLACEMENTS = {"newline": "\n", "hyphen": "-\n", "control": " ", "invalid": "\ufffd"}
_LAST_BMP = "\uffff"


def clean(raw: str) -> str:
    """The page text. `raw` is pdfium's, decoded with lone surrogates kept."""
    text = _SPECIAL.sub(_replacement, raw)
    return text + "\n" if text and not text.endswith("\n") else text


def origins(raw: str) -> list[int]:
    """For each character of `clean(raw)` the index of its UTF-16 unit in `raw`, -1 for an added newline."""
    units: list[int] = []
    position = unit = 0
    for match in _SPECIAL.finditer(raw):
        unit = _append_verbatim(units, raw[position : match.start()], unit)
        units += [unit, -1][: len(_replacement(match))]
        unit += match.end() - match.start()
        position = match.end()
    _append_verbatim(units, raw[position:], unit)
    return [*units, -1] if len(units) < len(clean(raw)) else units


def _replacement(match: re.Match[str]) -> str:
    return _REPLACEMENTS[match.lastgroup or ""]


def _append_verbatim(units: list[int], text: str, unit: int) -> int:
    for character in text:
        units.append(unit)
        unit += 2 if character > _LAST_BMP else 1
    return unit
