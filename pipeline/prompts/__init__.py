"""The texts that we send to models. Each has a version that changes with its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Prompt:
    """`version` is `name@` and eight hex digits of the text's SHA-256; it is logged with every use."""

    name: str
    text: str
    version: str


@cache
def load_prompt(name: str) -> Prompt:
    """The prompt in `name.md` of this package."""
    text = (files(__package__) / f"{name}.md").read_text(encoding="utf-8").strip()
    return Prompt(name, text, f"{name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}")
