"""What the pipeline asks of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from pipeline.models import ChatMessage, Draft, Source, ThreadParams

Vectors = npt.NDArray[np.float32]
Reply = TypeVar("Reply", bound=BaseModel)


class Embedder(Protocol):
    """Text to vectors of unit length."""

    @property
    def name(self) -> str:
        """Names the model and everything that changes its vectors; part of the key of stored vectors."""

    @property
    def dimension(self) -> int: ...

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Shape (len(texts), dimension), rows in the order given, L2 norm 1."""

    def embed_query(self, text: str) -> Vectors:
        """Shape (dimension,)."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Everything a generator may know. `sources` are untrusted data."""

    question: str
    history: tuple[ChatMessage, ...]
    sources: tuple[Source, ...]
    params: ThreadParams


class Generator(Protocol):
    """Writes an answer with citations that are only claims until chat/cite.py has proven them."""

    @property
    def name(self) -> str:
        """`extractive`, or `provider/model`; stored with the answer."""

    def warm(self) -> None:
        """Load what the first answer would otherwise wait for; asks nobody."""

    def stream(self, request: GenerationRequest) -> Iterator[Draft]:
        """Cumulative drafts. The last one has `complete` True unless the model was cut off.

        Raises TransientError (rate limit, timeout, connection; before or in the middle) and PermanentError
        (unknown model, wrong key, malformed reply).
        """


class StructuredModel(Protocol):
    """A model that fills a schema; AutoQuery uses it. Absent with the extractive generator."""

    def complete(self, messages: Sequence[ChatMessage], reply: type[Reply], *, max_tokens: int) -> Reply:
        """Raises TransientError or PermanentError as `Generator.stream` does."""
