"""Text to index terms: one analysis for documents and queries, on every text store.

The rules, in order:

* NFKC and case folding, so width variants, ligatures and capitals are equal. Soft hyphens, joiners and
  variation selectors vanish; a zero-width space is a space.
* A word is a run of letters, digits and combining marks. Everything else separates, `_` and `'` too;
  an English possessive `'s` is dropped.
* A number keeps its decimal point and loses its thousands separators: `$1,577.50` gives `1577.50`, so
  `1577` and `1,577` are one term. Signs, currencies and `%` are dropped.
* Scripts written without spaces between words (Han, kana, Hangul, Thai, Lao, Khmer, Burmese) give
  overlapping character bigrams; a run of one character gives itself. They never share a term with others.
* ASCII words get the Snowball English stem; words of other alphabets stay as they are.

A term has no white space, at most MAX_TERM_CHARS characters, and always encodes to UTF-8. The work is
linear in the text's length, whatever the text is.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from itertools import chain

from snowballstemmer.english_stemmer import EnglishStemmer

#: A longer run of letters is cut into pieces of this length.
MAX_TERM_CHARS = 64
_MAX_STEMMED_CHARS = 40
_CACHED_WORDS = 1 << 17

_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ecd\u0edc-\u0edf"  # Thai, Lao
    "\u1000-\u103f\u1050-\u108f\u1780-\u17d3"  # Burmese, Khmer
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"  # Hangul
    "\u2e80-\u2fdf\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"  # kana
)
_UNSPACED_RUN = re.compile(f"[{_UNSPACED}]+")
_UNSPACED_START = re.compile(f"[{_UNSPACED}]")

_IGNORED = re.compile("[\u00ad\u034f\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]+")
# Normalising is quadratic in the length of a run of combining marks, so it gets bounded pieces. A piece
# begins with the ASCII character before it, which the first mark may belong to.
_NON_ASCII_PIECE = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]{1,500}")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)*")


def analyse(text: str) -> list[str]:
    """The terms of a text in order, repeated as often as they occur."""
    folded = _fold(text)
    if folded.isascii():
        words = _ascii_pattern().findall(folded)
    else:
        words = _unicode_pattern().findall(_UNSPACED_RUN.sub(r" \g<0> ", folded))
    return list(chain.from_iterable(map(_terms, words)))


def analyse_document(text: str) -> str:
    """The terms of a text joined by one space, as `IndexedChunk.terms` holds them."""
    return " ".join(analyse(text))


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    text = _IGNORED.sub("", text).replace("\u200b", " ")
    if not unicodedata.is_normalized("NFKC", text):
        text = _NON_ASCII_PIECE.sub(lambda piece: unicodedata.normalize("NFKC", piece[0]), text)
    return text.casefold().replace("\u2019", "'")


def _terms(word: str) -> tuple[str, ...] | list[str]:
    if not word.isascii() and _UNSPACED_START.match(word):
        return _bigrams(word)
    return _word_terms(word)


def _bigrams(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]


@lru_cache(maxsize=_CACHED_WORDS)
def _word_terms(word: str) -> tuple[str, ...]:
    if len(word) > MAX_TERM_CHARS:
        return tuple(word[at : at + MAX_TERM_CHARS] for at in range(0, len(word), MAX_TERM_CHARS))
    word = word.removesuffix("'s")
    if "," in word:
        if _THOUSANDS.fullmatch(word):
            return (word.replace(",", ""),)
        return tuple(word.split(","))
    if word.isascii() and word.isalpha() and len(word) <= _MAX_STEMMED_CHARS:
        # A stemmer holds its word in itself, so each call has its own: threads share this function.
        return (EnglishStemmer().stemWord(word),)
    return (word,)


@cache
def _ascii_pattern() -> re.Pattern[str]:
    return _word_pattern("a-z0-9", "")


@cache
def _unicode_pattern() -> re.Pattern[str]:
    # \w has no combining marks, without which most Indic words would fall apart.
    marks = (chr(code) for code in range(0x300, 0xFE30) if unicodedata.category(chr(code)) in {"Mn", "Mc"})
    return _word_pattern(r"\w" + "".join(marks), f"[{_UNSPACED}]+|")


def _word_pattern(letters: str, first: str) -> re.Pattern[str]:
    number_tail = r"(?:(?<=\d)[.,](?=\d)\d{1,20}){1,8}"
    return re.compile(f"{first}(?:(?!_)[{letters}]){{1,{MAX_TERM_CHARS}}}(?:'s(?![{letters}])|{number_tail})?")
