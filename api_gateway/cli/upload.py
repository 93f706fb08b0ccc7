"""Sends files to a knowledge base in batches; one bad file never stops the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from api_gateway.cli.api import Api
from api_gateway.cli.walk import FoundFile, Skipped, shown, unreadable
from pipeline.errors import TooLargeError, TransientError

BATCH_FILES = 32
BATCH_BYTES = 8 * 1024 * 1024
#: How long to wait before asking an overloaded server again when it does not say.
RETRY_S = 2.0


@dataclass(slots=True)
class Sent:
    """What became of every file: the server's results, and what never got there."""

    results: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def accepted(self) -> list[str]:
        """Ids of documents that have work to do now."""
        return [each["document_id"] for each in self.results if each["outcome"] == "accepted"]

    @property
    def known(self) -> list[str]:
        """Ids of all documents that the server has for these files; unchanged ones may still be in work."""
        return [each["document_id"] for each in self.results if each["outcome"] != "error"]

    @property
    def failures(self) -> list[tuple[str, str]]:
        """(key or path, reason)."""
        refused = [(each["key"], each["error"]["detail"]) for each in self.results if each["outcome"] == "error"]
        return [(each.path, each.reason) for each in self.skipped if each.failure] + refused


def batches(files: Iterable[FoundFile]) -> Iterator[list[FoundFile]]:
    """At most 32 files or 8 MiB together; a larger file goes alone."""
    batch: list[FoundFile] = []
    total = 0
    for file in files:
        if batch and (len(batch) == BATCH_FILES or total + file.size_bytes > BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(file)
        total += file.size_bytes
    if batch:
        yield batch


def send_files(api: Api, kb_id: str, files: Sequence[FoundFile], on_progress: Callable[[int], None]) -> Sent:
    """Send all; `on_progress` gets the count of files of each batch. Raises UnreachableError and UnauthorizedError."""
    sent = Sent()
    for batch in batches(files):
        if len(batch) == 1 and batch[0].size_bytes > BATCH_BYTES:
            _send_large(api, kb_id, batch[0], sent)
        else:
            _send_small(api, kb_id, batch, sent)
        on_progress(len(batch))
    return sent


def _send_small(api: Api, kb_id: str, batch: Sequence[FoundFile], sent: Sent) -> None:
    """Read first, so that a file that changes or vanishes meanwhile can't break the request of its neighbours."""
    contents: list[tuple[str, bytes]] = []
    for file in batch:
        try:
            contents.append((file.key, file.path.read_bytes()))
        except OSError as error:
            sent.skipped.append(unreadable(file.path, error))
    if contents:
        sent.results += _patiently(lambda: api.upload(kb_id, contents))


def _send_large(api: Api, kb_id: str, file: FoundFile, sent: Sent) -> None:
    def attempt() -> list[dict[str, Any]]:
        with file.path.open("rb") as stream:
            return api.upload(kb_id, [(file.key, stream)])

    try:
        sent.results += _patiently(attempt)
    except OSError as error:
        sent.skipped.append(unreadable(file.path, error))
    except TooLargeError as error:
        sent.skipped.append(Skipped(shown(file.path), error.code, error.message))


def _patiently(attempt: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Repeat while the server says that it has too much to do."""
    while True:
        try:
            return attempt()
        except TransientError as error:
            if error.code != "overloaded":
                raise
            time.sleep(error.retry_after_s or RETRY_S)
