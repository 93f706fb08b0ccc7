"""What crosses the pipes between a worker and its parser process.

A frame is a kind (one byte), a payload length (four bytes, big endian) and the payload, JSON of the records below.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from pipeline.ingest.limits import ParserLimits
from pipeline.models import Box, ExtractedShard, MediaType, Probe

HEADER = struct.Struct(">BI")


class Kind(IntEnum):
    """Of a request, then of a reply: a result, a DocumentError, or why the parser has to be replaced."""

    START = 1
    CALL = 2
    RESULT = 3
    REFUSED = 4
    CRASHED = 5


@dataclass(frozen=True, slots=True)
class Start:
    """The first frame: the bounds that the child sets for itself before it opens anything."""

    limits: ParserLimits


@dataclass(frozen=True, slots=True)
class ProbeCall:
    path: str
    name: str


@dataclass(frozen=True, slots=True)
class ExtractCall:
    path: str
    media_type: MediaType
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LocateCall:
    path: str
    page_number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Call:
    """Exactly one of the three is set."""

    probe: ProbeCall | None = None
    extract: ExtractCall | None = None
    locate: LocateCall | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A DocumentError on its way through the pipe."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Crash:
    reason: str


Result = Probe | ExtractedShard | tuple[Box, ...]


def frame(kind: Kind, payload: bytes) -> bytes:
    return HEADER.pack(kind, len(payload)) + payload
