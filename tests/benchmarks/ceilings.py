"""What the stages' own engines do alone on the same cores: the figures that ours are compared with."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pypdfium2

from pipeline.inference.embedder import OnnxEmbedder, bundled_model_dir

#: Enough chunks for a stable figure, few enough to take some seconds.
EMBEDDED_CHUNKS = 512


def pdfium_pages_per_s(files: Sequence[Path], processes: int) -> float:
    """Text of every page by pypdfium2 alone, the files shared out over `processes`."""
    return _rate(_read_pages, [list(files[n::processes]) for n in range(processes)])


def embedder_chunks_per_s(texts: Sequence[str], processes: int) -> float:
    """The embedder alone, one thread in each of `processes`, in batches like the pipeline's."""
    some = list(texts[:: max(1, len(texts) // EMBEDDED_CHUNKS)])[:EMBEDDED_CHUNKS]
    return _rate(_embed, [some[n::processes] for n in range(processes)])


def _rate(work: Callable[[Any], int], shares: Sequence[Any]) -> float:
    """Items a second of all shares at once, each in a warm process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(shares)) as pool:
        pool.map(_warm, [work] * len(shares), chunksize=1)
        started = time.monotonic()
        done = sum(pool.map(work, shares, chunksize=1))
        return done / (time.monotonic() - started)


def _warm(work: Callable[[Any], int]) -> int:
    return work([])


def _read_pages(files: Sequence[Path]) -> int:
    pages = 0
    for file in files:
        document = pypdfium2.PdfDocument(file)
        for page in document:
            page.get_textpage().get_text_range()
        pages += len(document)
        document.close()
    return pages


_embedders: list[OnnxEmbedder] = []


def _embed(texts: Sequence[str]) -> int:
    if not _embedders:
        _embedders.append(OnnxEmbedder(bundled_model_dir(), threads=1))
    for start in range(0, len(texts), 64):
        _embedders[0].embed_documents(texts[start : start + 64])
    return len(texts)
