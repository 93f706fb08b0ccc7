"""Server-sent events, as the HTML standard has them: fields, blank line, next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """`id` is None when the server gave none; `data` has its lines joined by newlines."""

    id: str | None
    type: str
    data: str


def parse_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Whole events only: what a broken connection cut off is dropped, as the standard says. Comments are skipped."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                fields.setdefault(name, []).append(value.removeprefix(" "))
        else:
            if "data" in fields:
                yield _event(fields)
            fields = {}


def _event(fields: dict[str, list[str]]) -> ServerEvent:
    identifier = fields["id"][-1] if "id" in fields else None
    return ServerEvent(identifier, fields.get("event", ["message"])[-1], "\n".join(fields["data"]))
