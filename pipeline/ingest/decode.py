"""Bytes of a text file in an unknown encoding to `str`.

Order of belief: a byte order mark; ISO-2022 escapes; valid UTF-8; the encoding that the file declares for itself; what
charset-normalizer finds in the bytes. Text that is UTF-8 but for a few damaged bytes stays UTF-8, with
U+FFFD in their place. What decodes only into control characters is no text.
"""

from __future__ import annotations

import codecs
import re

from charset_normalizer import CharsetMatches, from_bytes

from pipeline.errors import DocumentError

#: UTF-32 first: its little-endian mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: ISO-2022 is made of ASCII bytes and would pass as UTF-8.
_ISO_2022_ESCAPES = (b"\x1b$B", b"\x1b$@", b"\x1b$)C")
#: Encodings that files name but whose superset their authors used (WHATWG Encoding, section 4.2).
_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_MULTI_BYTE_UNITS = ("utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be")
#: Tab, line feed, form feed, carriage return, backspace and escape do occur in texts.
_JUNK = re.compile(r"[\x00-\x07\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_JUNK_SHARE = 0.01
_DAMAGE_SHARE = 0.001
_CHAOS_TOLERANCE = 0.05


def decode(data: bytes, declared: str | None = None) -> str:
    """The text of `data` with newlines as they are and without a byte order mark.

    `declared` is the encoding that the file itself names, if any. Raises DocumentError
    (`unsupported_type`) when the bytes are no text in any encoding.
    """
    text = _decode_certain(data) or _decode_declared(data, declared) or _decode_guess(data)
    if text is None or is_junk(text):
        raise DocumentError("The file is binary data, not text in a known encoding.", code="unsupported_type")
    return text


def is_junk(text: str) -> bool:
    """Whether control characters show that this was never text; a NUL is enough."""
    return "\x00" in text or len(_JUNK.findall(text)) > _JUNK_SHARE * len(text)


def normalize_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_certain(data: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strict(data, encoding) or data.decode(encoding, errors="replace")
    if any(escape in data for escape in _ISO_2022_ESCAPES):
        return _strict(data, "iso2022_jp_2") or _strict(data, "iso2022_kr") or _strict(data, "utf-8")
    return _strict(data, "utf-8") if b"\x00" not in data else None


def _decode_declared(data: bytes, declared: str | None) -> str | None:
    if declared is None:
        return None
    try:
        name = codecs.lookup(declared.strip()).name
    except (LookupError, ValueError):
        return None
    # A declaration that can be read as ASCII is not in the wide encoding that it names.
    return None if name.startswith(("utf-16", "utf-32")) else _strict(data, _SUPERSETS.get(name, name))


def _decode_guess(data: bytes) -> str | None:
    damaged = _decode_damaged_utf8(data)
    if damaged is not None:
        return damaged
    encoding = _guess(from_bytes(data))
    if encoding is None or (b"\x00" in data and encoding not in _MULTI_BYTE_UNITS):
        return None
    return _strict(data, encoding)


def _guess(matches: CharsetMatches) -> str | None:
    """The best match, except that of equally good ones Windows-1252 wins, the usual encoding of the West."""
    best = matches.best()
    if best is None:
        return None
    for match in matches:
        western = match.encoding == "cp1252" or "cp1252" in match.could_be_from_charset
        if western and match.coherence >= best.coherence and match.chaos <= best.chaos + _CHAOS_TOLERANCE:
            return "cp1252"
    return best.encoding


def _decode_damaged_utf8(data: bytes) -> str | None:
    """UTF-8 with at most one damaged place in a thousand bytes and in ten characters beyond ASCII."""
    if b"\x00" in data:
        return None
    text = data.decode("utf-8", errors="replace")
    damage = text.count("\ufffd")
    foreign = len(text) - len(text.encode("ascii", errors="ignore"))
    fits = damage <= _DAMAGE_SHARE * len(data) and damage * 10 <= foreign
    return text if fits else None


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None
