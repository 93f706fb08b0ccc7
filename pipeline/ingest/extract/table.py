r"""CSV: one paragraph a record, in which every cell stands verbatim.

With a header row, which comes first as ``column | column``, a record reads ``column: value; column: value``, so that a
chunk of records still knows its columns; without one, ``value | value``. Empty cells are left out. Only the joints are
ours: a cell's own text, line breaks and quotes included, is never altered (newlines are ``\n``, as everywhere).
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from pipeline.errors import DocumentError
from pipeline.ingest.extract.text import one_page, read_text
from pipeline.models import ExtractedShard

_DELIMITERS = ",;\t|"
_SAMPLE_CHARACTERS = 64 * 1024
_SAMPLE_RECORDS = 100
_NUMBER = re.compile(r"[-+]?[\d.,:/\s%$€£¥-]*\d[\d.,:/\s%$€£¥-]*")

Record = list[str]


def extract(path: Path) -> ExtractedShard:
    """Raises DocumentError `broken_csv` when the csv module gives up."""
    try:
        return one_page(render(read_text(path)))
    except csv.Error as error:
        raise DocumentError(f"The CSV can't be read: {error}.", code="broken_csv") from error


def render(text: str) -> str:
    records = _records(text, sniff_delimiter(text))
    first = next(records, [])
    if is_header(first):
        return "\n\n".join([_joined(first), *(_named(first, record) for record in records)])
    return "\n\n".join(filter(None, map(_joined, (first, *records))))


def sniff_delimiter(text: str) -> str:
    """The delimiter that cuts the first records most evenly into more than one cell; a comma if none does."""
    sample = text[:_SAMPLE_CHARACTERS]
    return max(_DELIMITERS, key=lambda delimiter: _evenness(sample, delimiter))


def is_header(record: Record) -> bool:
    """Names are filled in, all different, and not numbers."""
    names = [cell.strip() for cell in record]
    return len(names) > 1 and all(names) and len(set(names)) == len(names) and not any(map(_NUMBER.fullmatch, names))


def _evenness(sample: str, delimiter: str) -> tuple[float, int]:
    """Text behind a closing quote means that the quotes belong to another delimiter's cells."""
    try:
        records = list(islice(_records(sample, delimiter, strict=True), _SAMPLE_RECORDS))
    except csv.Error:
        return 0.0, 0
    widths = Counter(map(len, records))
    if not widths:
        return 0.0, 0
    width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
    return (count / widths.total() if width > 1 else 0.0), width


def _records(text: str, delimiter: str, *, strict: bool = False) -> Iterator[Record]:
    """Non-empty records. The csv module's limit on a cell is process-wide; the file's size already bounds it."""
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=strict)
    return (record for record in reader if any(cell.strip() for cell in record))


def _named(header: Record, record: Record) -> str:
    cells = [f"{name.strip()}: {cell}" for name, cell in zip(header, record, strict=False) if cell.strip()]
    return "; ".join([*cells, *_filled(record[len(header) :])])


def _joined(record: Record) -> str:
    return " | ".join(_filled(record))


def _filled(cells: Iterable[str]) -> list[str]:
    return [cell for cell in cells if cell.strip()]
