"""Which writing a text is in, for embedders that know one only."""

from __future__ import annotations

_LATIN_BLOCKS = (
    ("\u0041", "\u024f"),
    ("\u1e00", "\u1eff"),
    ("\u2c60", "\u2c7f"),
    ("\ua720", "\ua7ff"),
    ("\uff21", "\uff5a"),
)


def mostly_latin(text: str) -> bool:
    """Whether at least half of the letters are Latin; true when there are none."""
    letters = [character for character in text if character.isalpha()]
    latin = sum(1 for letter in letters if letter.isascii() or _is_latin(letter))
    return 2 * latin >= len(letters)


def _is_latin(letter: str) -> bool:
    return any(first <= letter <= last for first, last in _LATIN_BLOCKS)
