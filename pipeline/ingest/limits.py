"""What one document may cost while it is parsed."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Bounds of the parser process. Sizes are in bytes, times in seconds.

    `memory_bytes` bounds the address space of the parser process (enforced on Linux), `cpu_s` and
    `wall_s` bound one call. `result_bytes` bounds what one call may answer, so a small file that unfolds
    into an enormous text is refused. After `documents_per_child` calls the process is replaced, because
    parsers of broken files leak.
    """

    max_bytes: int = 200 * MIB
    max_pages: int = 10_000
    memory_bytes: int = 2048 * MIB
    cpu_s: int = 60
    wall_s: float = 120.0
    result_bytes: int = 128 * MIB
    documents_per_child: int = 500
