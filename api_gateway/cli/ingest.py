"""`sourcemill ingest`: from paths to documents, with a bar for people and one record for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from api_gateway.cli.api import Api, segment
from api_gateway.cli.output import ExitCode, Output
from api_gateway.cli.upload import Sent, send_files
from api_gateway.cli.wait import Rates, Record, rates, wait_until_final
from api_gateway.cli.walk import FoundFile, Skipped, find_files
from pipeline.errors import NotFoundError
from pipeline.models import RevisionState

#: The knowledge base that is used, and made, when the user names none.
DEFAULT_KB = "default"
#: A summary of more documents than this names only those that need attention.
MAX_ROWS = 40
_BAD_STATES = frozenset({RevisionState.FAILED, RevisionState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Wish:
    """What to ingest and how."""

    paths: tuple[Path, ...]
    root: Path | None
    max_file_bytes: int
    wait: bool


@dataclass(frozen=True, slots=True)
class Ingested:
    kb: str
    sent: Sent
    documents: list[Record] | None

    @property
    def failures(self) -> list[tuple[str, str]]:
        """(path or key, reason) of files that never got there and of documents that failed."""
        bad = [document for document in self.documents or () if document["state"] in _BAD_STATES]
        return self.sent.failures + [(document["key"], reason(document)) for document in bad]


def knowledge_base(api: Api, name: str | None) -> Record:
    """The one named; without a name the default one, made if needed. NotFoundError says how to make one."""
    try:
        found: Record = api.get(f"/v1/knowledge-bases/{segment(name or DEFAULT_KB)}")
    except NotFoundError as error:
        if name is not None:
            hint = f"{error.message} Make it with `sourcemill kb create {name}`."
            raise NotFoundError(hint, code=error.code) from error
        found = api.post("/v1/knowledge-bases", {"name": DEFAULT_KB})
    return found


def ingest(api: Api, kb_name: str | None, wish: Wish, output: Output) -> ExitCode:
    found = list(find_files(wish.paths, wish.root, wish.max_file_bytes))
    if not found:
        output.remark("There is no file in " + ", ".join(map(str, wish.paths)) + "; hidden ones are left out.")
        return ExitCode.OK
    try:
        result = send_found(api, knowledge_base(api, kb_name), found, wish, output)
    except KeyboardInterrupt:
        output.remark("Interrupted. What was sent goes on: see `sourcemill documents list`.")
        raise
    _report(result, output)
    return ExitCode.FAILED if result.failures else ExitCode.OK


def run_ingest(api: Api, kb: Record, wish: Wish, output: Output) -> Ingested:
    return send_found(api, kb, list(find_files(wish.paths, wish.root, wish.max_file_bytes)), wish, output)


def send_found(api: Api, kb: Record, found: Sequence[FoundFile | Skipped], wish: Wish, output: Output) -> Ingested:
    """Send, and wait if asked; problems of single files are remarked as they come and end nothing."""
    skipped = [each for each in found if isinstance(each, Skipped)]
    files = [each for each in found if isinstance(each, FoundFile)]
    with _bar(output) as bar:
        task = bar.add_task("Sending", total=len(files))
        sent = send_files(api, kb["id"], files, lambda count: bar.advance(task, count))
    sent.skipped[:0] = skipped
    _remark_skipped(sent, output)
    documents = _wait(api, kb, sent, output) if wish.wait else None
    return Ingested(kb["name"], sent, documents)


def _wait(api: Api, kb: Record, sent: Sent, output: Output) -> list[Record]:
    with _bar(output) as bar:
        task = bar.add_task("Working", total=len(sent.known))

        def show(done: int, states: Mapping[str, int]) -> None:
            text = ", ".join(f"{count} {state}" for state, count in states.items())
            bar.update(task, completed=done, description=f"Working  {text}" if text else "Working")

        return wait_until_final(api, kb["id"], sent.known, show)


def _bar(output: Output) -> Progress:
    """Drawn in terminals only, on standard error, so that results can be piped."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = output.as_json or not output.remarks.is_terminal
    return Progress(*columns, console=output.remarks, disable=hidden)


def _remark_skipped(sent: Sent, output: Output) -> None:
    for each in sent.skipped:
        output.remark(f"{'Not sent' if each.failure else 'Left out'}: {each.path}: {each.reason}")
    for result in sent.results:
        if result["outcome"] == "error":
            output.remark(f"Refused: {result['key']}: {result['error']['detail']} ({result['error']['code']})")


def _report(result: Ingested, output: Output) -> None:
    outcomes = Counter(each["outcome"] for each in result.sent.results)
    refused = len(result.sent.failures)
    output.line(
        f"{outcomes['accepted']} accepted, {outcomes['unchanged']} unchanged, {refused} failed, "
        f"in knowledge base {result.kb}."
    )
    speed = None
    if result.documents is not None:
        speed = rates(result.documents)
        show_documents(result.documents, output)
        show_rates(speed, output)
    elif outcomes["accepted"]:
        output.line("They are being worked on: see `sourcemill status --watch`.")
    output.data(_json(result, speed))


def _json(result: Ingested, speed: Rates | None) -> dict[str, Any]:
    return {
        "kb": result.kb,
        "results": result.sent.results,
        "skipped": [asdict(each) for each in result.sent.skipped],
        "documents": result.documents,
        "rates": asdict(speed) if speed else None,
    }


def show_documents(documents: Sequence[Record], output: Output) -> None:
    """A line each; of very many, only those that are not simply ready, and the counts."""
    columns = ("document", "state", "pages", "chunks", "reason")
    shown = documents if len(documents) <= MAX_ROWS else [d for d in documents if d["state"] != RevisionState.READY]
    rows = [(d["key"], d["state"], d["page_count"], d["chunk_count"], reason(d)) for d in shown]
    if rows:
        output.table(columns, rows)
    counts = Counter(d["state"] for d in documents)
    if counts:
        output.line(", ".join(f"{count} {state}" for state, count in counts.items()))


def reason(document: Record) -> str:
    """Why it failed, or which pages could not be read."""
    if document["error"]:
        return f"{document['error']} ({document['error_code']})"
    if document["state"] == RevisionState.EMPTY:
        return "no text in it; pages that are images would need OCR, which is not there yet"
    missing = document["missing_pages"]
    return f"{len(missing)} pages could not be read: {', '.join(missing)}" if missing else ""


def show_rates(speed: Rates, output: Output) -> None:
    if speed.searchable_s:
        output.line(f"{speed.pages} pages searchable in {speed.searchable_s:.1f} s: {speed.pages_per_s} pages/s")
    if speed.ready_s:
        output.line(f"{speed.chunks} chunks ready in {speed.ready_s:.1f} s: {speed.chunks_per_s} chunks/s")
