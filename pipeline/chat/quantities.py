"""Numbers and dates in text, in a form that can be compared: value, scale, unit, sign, precision."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

_SCALES = {
    "hundred": 2, "thousand": 3, "k": 3, "million": 6, "millions": 6, "mn": 6, "m": 6, "billion": 9,
    "billions": 9, "bn": 9, "b": 9, "trillion": 12, "tn": 12, "百": 2, "千": 3, "万": 4, "百万": 6, "亿": 8, "万亿": 12,
}  # fmt: skip
_UNITS = {
    "%": "%", "percent": "%", "per cent": "%", "pct": "%", "百分比": "%",
    "percentage point": "points", "percentage points": "points", "pp": "points",
    "basis point": "bp", "basis points": "bp", "bps": "bp",
    "$": "USD", "us$": "USD", "usd": "USD", "dollar": "USD", "dollars": "USD", "美元": "USD",
    "€": "EUR", "eur": "EUR", "euro": "EUR", "euros": "EUR", "欧元": "EUR", "£": "GBP", "gbp": "GBP", "pounds": "GBP",
    "¥": "JPY", "jpy": "JPY", "yen": "JPY", "日元": "JPY", "rmb": "CNY", "cny": "CNY", "元": "CNY",
    "second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hour": "h", "hours": "h",
    "day": "d", "days": "d", "week": "week", "weeks": "week", "month": "month", "months": "month",
    "year": "year", "years": "year", "mg": "mg", "kg": "kg", "km": "km", "mm": "mm", "cm": "cm", "ml": "ml",
    "mile": "mile", "miles": "mile", "metres": "m", "meters": "m", "feet": "ft", "°c": "C", "°f": "F",
    "gb": "GB", "mb": "MB", "tb": "TB", "kw": "kW", "mw": "MW", "gw": "GW", "天": "d", "小时": "h", "公里": "km",
}  # fmt: skip
_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORD_VALUES = {
    **{word: value for value, word in enumerate(_ONES + _TEENS)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<month>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_YEAR = r"(?P<year>(?:1[0-9]|20)\d{2})"
_DATES = (
    re.compile(rf"(?<!\d){_YEAR}-(?P<m>\d{{2}})-(?P<day>\d{{2}})(?!\d)"),
    re.compile(rf"{_YEAR}\s?年(?:\s?(?P<m>\d{{1,2}})\s?月(?:\s?(?P<day>\d{{1,2}})\s?[日号])?)?"),
    re.compile(rf"\b{_MONTH}\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? {_YEAR}\b)?"),
    re.compile(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)? {_MONTH}\b\.?(?:,? {_YEAR}\b)?"),
    re.compile(rf"\b{_MONTH}\.?,? {_YEAR}\b"),
    re.compile(rf"\b(?:FY ?|[Ff]iscal (?:year )?){_YEAR}\b"),
    re.compile(
        rf"(?<![\w.,$€£¥]){_YEAR}(?:[-\u2013/]\d{{2}}(?!\d))?"
        r"(?![\d%]|[.,]\d|\s?(?:%|percent|million|billion|thousand))(?![a-zA-Z万亿元])"
    ),
)
#: "Note 5" and "page 12" point at something; "1st" counts nothing.
_REFERENCE = re.compile(
    r"\b(?:notes?|items?|pages?|sections?|tables?|figures?|sources?|chapters?|exhibits?|parts?|no\.|article|step|form|q)"
    r"\s?\d+(?:[.,-]\d+)*(?:-?[A-Za-z]\b)?|\b\d+(?:st|nd|rd|th)\b",
    re.IGNORECASE,
)


def _longest_first(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_SYMBOL_UNITS = _longest_first(unit for unit in _UNITS if not (unit.isascii() and unit.replace(" ", "").isalpha()))
_WORD_UNITS = _longest_first(unit for unit in _UNITS if unit.isascii() and unit.replace(" ", "").isalpha())
_WORD_SCALES = _longest_first(scale for scale in _SCALES if scale.isascii() and len(scale) > 1)
_CJK_SCALES = _longest_first(scale for scale in _SCALES if not scale.isascii())
_NUMBER_WORD = rf"(?:(?:{'|'.join(_TENS)})[- ])?(?:{'|'.join(_WORD_VALUES)})"
_NUMBER = re.compile(
    r"(?P<open>\()?(?P<sign>(?<![\w)])[-\u2212\u2013+](?=[\d$€£¥U]))?(?P<currency>US\$|[$€£¥])?\s?"
    r"(?P<open_inside>\()?(?P<inner>[-\u2212])?"
    rf"(?:(?<![A-Za-z0-9_.])(?P<digits>\d+(?:[.,]\d+)*)|\b(?P<word>{_NUMBER_WORD})\b)"
    r"(?P<half>½)?(?P<close>\s?\))?"
    rf"(?P<scale>[kmb](?![A-Za-z])|\s?-?(?:{_WORD_SCALES})\b|\s?(?:{_CJK_SCALES}))?"
    rf"(?:\s?-?(?P<unit>{_SYMBOL_UNITS}|(?:{_WORD_UNITS})\b))?(?P<close_late>\s?\))?",
    re.IGNORECASE,
)
#: Letters that a pattern takes for others when it ignores case, and `lower` does not.
_LOOKALIKES = str.maketrans("\u017f\u0130\u0131\u212a", "sIiK")
_NOUN = re.compile(r"\s*([^\W\d_]+)")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as written. `values` has two when a separator can be read in two ways (`1.234`).

    `exponent` is the power of ten that its scale word gives, None without one; `places` the decimal
    places written; `sign` is "", "+", "-" or "()"; `noun` the word after it.
    """

    text: str
    values: tuple[Decimal, ...]
    exponent: int | None
    places: int
    unit: str
    sign: str
    noun: str
    is_count_word: bool

    def agrees_with(self, shown: Quantity) -> bool:
        """Whether a claim of this number may rest on `shown`, signs apart."""
        if self.unit and shown.unit and self.unit != shown.unit:
            return False
        return any(self._same_value(ours, theirs, shown) for ours in self.values for theirs in shown.values)

    def _same_value(self, ours: Decimal, theirs: Decimal, shown: Quantity) -> bool:
        shifts = self._shifts(shown)
        return any(ours == theirs.scaleb(shift) or self._is_rounded(ours, theirs.scaleb(shift)) for shift in shifts)

    def _shifts(self, shown: Quantity) -> tuple[int, ...]:
        """Powers of ten by which the shown figure may be moved to the claim's scale.

        A scale that only one side names is the other side's table heading.
        """
        if self.exponent is not None and shown.exponent is not None:
            return (shown.exponent - self.exponent,)
        if self.exponent is not None:
            return (0, -3, -6, -9, -self.exponent)
        return (0,) if shown.exponent is None else (0, shown.exponent)

    def _is_rounded(self, ours: Decimal, theirs: Decimal) -> bool:
        """Whether the claim is the shown figure with fewer decimal places, correctly rounded."""
        return abs(ours - theirs) * 2 <= Decimal(1).scaleb(-self.places) and theirs != theirs.to_integral_value()


@dataclass(frozen=True, slots=True)
class Dates:
    years: frozenset[str]
    months: frozenset[str]
    days: frozenset[str]

    def of(self, kind: str) -> frozenset[str]:
        return {"year": self.years, "month": self.months, "day": self.days}[kind]


def dates(text: str) -> Dates:
    found = [match.groupdict() for match in _split_dates(text)[0]]
    return Dates(
        frozenset(each["year"] for each in found if each.get("year")),
        frozenset(month for each in found if (month := _month(each))),
        frozenset(str(int(each["day"])) for each in found if each.get("day")),
    )


def quantities(text: str) -> list[Quantity]:
    """The numbers of a text in order, without those that are part of a date."""
    rest = _REFERENCE.sub(_blank, _split_dates(text)[1])
    return [_quantity(match, rest) for match in _NUMBER.finditer(rest)]


def _split_dates(text: str) -> tuple[list[re.Match[str]], str]:
    """The dates of a text, and the text with blanks in their place."""
    found: list[re.Match[str]] = []
    text = text.translate(_LOOKALIKES)
    for pattern in _DATES:
        found.extend(pattern.finditer(text))
        text = pattern.sub(_blank, text)
    return found, text


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


def _month(found: dict[str, str | None]) -> str:
    name, number = found.get("month"), found.get("m")
    if name:
        return name[:3].lower()
    return _MONTHS[int(number) - 1] if number and 1 <= int(number) <= len(_MONTHS) else ""


def _quantity(match: re.Match[str], text: str) -> Quantity:
    digits, word, scale = match["digits"], match["word"], match["scale"]
    noun = _NOUN.match(text, match.end())
    value = _values(digits) if digits else (_word_value(word),)
    if match["half"]:
        value = tuple(each + Decimal("0.5") for each in value)
    unit = match["unit"] or match["currency"] or ""
    return Quantity(
        text=match.group().strip(),
        values=value,
        exponent=_SCALES[scale.strip().lstrip("-").lower()] if scale else None,
        places=_places(digits or ""),
        unit=_UNITS.get(unit.lower(), ""),
        sign=_sign(match),
        noun=noun.group(1).lower() if noun else "",
        is_count_word=word is not None and not scale and not unit,
    )


def _word_value(word: str) -> Decimal:
    """Of `seven`, `forty` or `forty-seven`."""
    return Decimal(sum(_WORD_VALUES[part] for part in re.split("[- ]", word.lower())))


def _sign(match: re.Match[str]) -> str:
    if (match["open"] or match["open_inside"]) and (match["close"] or match["close_late"]):
        return "()"
    sign = match["sign"] or match["inner"] or ""
    return "-" if sign in "\u2212\u2013" and sign else sign


def _values(digits: str) -> tuple[Decimal, ...]:
    """Readings of digits with separators: the last of two kinds is the decimal one; `1,234` has two readings."""
    commas, stops = digits.count(","), digits.count(".")
    if commas and stops:
        decimal = max(",.", key=digits.rindex)
        return (Decimal(digits.replace("," if decimal == "." else ".", "").replace(decimal, ".")),)
    whole = Decimal(digits.replace(",", "").replace(".", ""))
    if commas + stops != 1:
        return (whole,)
    fraction = Decimal(digits.replace(",", "."))
    is_grouped = len(re.split("[.,]", digits)[1]) == 3  # noqa: PLR2004  # a group of thousands
    if not is_grouped:
        return (fraction,)
    return (whole,) if commas else (fraction, whole)


def _places(digits: str) -> int:
    parts = digits.rsplit(".", 1)
    return len(parts[1]) if len(parts) > 1 else 0
