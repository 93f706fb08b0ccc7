"""The client's side of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson


@dataclass(frozen=True)
class Received:
    id: int
    type: str
    data: Any


def parse(block: str) -> Received | None:
    """One block between blank lines; None for a comment or `retry`."""
    fields = dict(line.split(": ", 1) for line in block.split("\n") if line and line[0] != ":")
    if "data" not in fields:
        return None
    return Received(int(fields["id"]), fields["event"], orjson.loads(fields["data"]))


async def events_of(response: httpx.Response) -> AsyncIterator[Received]:
    rest = ""
    async for piece in response.aiter_text():
        *blocks, rest = (rest + piece).split("\n\n")
        for block in blocks:
            event = parse(block)
            if event is not None:
                yield event
