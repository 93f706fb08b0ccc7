"""Commands about documents and questions: ingest, ask, kb, documents."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from api_gateway.cli import ask as asking
from api_gateway.cli import ingest as ingesting
from api_gateway.cli.api import segment
from api_gateway.cli.connection import open_api
from api_gateway.cli.ingest import reason
from api_gateway.cli.options import Json, KbName
from api_gateway.cli.output import ExitCode, Output, size
from pipeline.settings import load_settings

kb = typer.Typer(no_args_is_help=True, help="Knowledge bases: named collections of documents.")
documents = typer.Typer(no_args_is_help=True, help="Documents of a knowledge base.")

DocumentId = Annotated[str, typer.Argument(help="The document's id, see `documents list`.")]


def _path(given: str) -> Path:
    """An empty argument is an unset variable of the user's shell, not the present folder."""
    if not str(given):
        raise typer.BadParameter("a path is empty")
    return Path(given)


def ingest(
    paths: Annotated[
        list[Path], typer.Argument(parser=_path, help="Files and folders; folders with all that is in them.")
    ],
    kb_name: KbName = None,
    root: Annotated[
        Path | None, typer.Option(help="Make keys relative to this folder. Default: a key is the absolute path.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every document is final, then sum up.")] = False,
    as_json: Json = False,
) -> None:
    """Send files to a knowledge base. Same bytes under the same key: unchanged, no work.

    Hidden files are left out. Exit code 1 when any file could not be sent or, with --wait, any document failed;
    the others are not affected.
    """
    settings = load_settings()
    wish = ingesting.Wish(tuple(paths), root, settings.max_file_bytes, wait)
    with open_api(settings) as api:
        code = ingesting.ingest(api, kb_name, wish, Output(as_json=as_json))
    _exit(code)


def ask(
    question: Annotated[str, typer.Argument(help="The question, in quotes.")],
    kbs: Annotated[
        list[str] | None, typer.Option("--kb", help="Knowledge base, by name or id; may be repeated.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="`extractive`, or provider/model of the server's provider.")] = None,
    as_json: Json = False,
) -> None:
    """Ask, and watch the answer being written, with the document, page and quote of each citation.

    Without --kb the only knowledge base is asked. Exit code 0: an answer; 7: it abstained; 1: it failed.
    With --json the final record is printed.
    """
    with open_api(load_settings()) as api:
        code = asking.ask(api, question, kbs or [], Output(as_json=as_json), model)
    _exit(code)


@kb.command("create")
def create_kb(
    name: str,
    description: Annotated[str, typer.Option(help="What is in it.")] = "",
    as_json: Json = False,
) -> None:
    """Make a knowledge base. Exit code 6 when the name is taken."""
    output = Output(as_json=as_json)
    with open_api(load_settings()) as api:
        made = api.post("/v1/knowledge-bases", {"name": name, "description": description})
    output.line(f"{made['name']}  {made['id']}")
    output.data(made)


@kb.command("list")
def list_kbs(as_json: Json = False) -> None:
    """List the knowledge bases."""
    output = Output(as_json=as_json)
    with open_api(load_settings()) as api:
        found = sorted(api.pages("/v1/knowledge-bases"), key=itemgetter("name"))
    output.table(("name", "id", "description"), [(each["name"], each["id"], each["description"]) for each in found])
    output.data(found)


@kb.command("show")
def show_kb(name: Annotated[str, typer.Argument(help="Name or id.")], as_json: Json = False) -> None:
    """Show a knowledge base and how many documents are in each state."""
    output = Output(as_json=as_json)
    with open_api(load_settings()) as api:
        found = api.get(f"/v1/knowledge-bases/{segment(name)}")
    output.line(f"{found['name']}  {found['id']}  {found['description']}")
    output.table(("documents", "count"), found["documents"].items())
    output.data(found)


@documents.command("list")
def list_documents(
    kb_name: KbName = None,
    state: Annotated[str | None, typer.Option(help="Only those in this state: ready, failed, …")] = None,
    as_json: Json = False,
) -> None:
    """List the documents of a knowledge base, as they come; with --json one line each. Without --kb: the only one."""
    output = Output(as_json=as_json)
    rows = []
    with open_api(load_settings()) as api:
        path = f"/v1/knowledge-bases/{segment(kb_name or asking.only_kb(api))}/documents"
        for each in api.pages(path, state=state, limit=500):
            output.data(each)
            rows.append((each["id"], each["key"], each["state"], each["page_count"], reason(each)))
    output.table(("id", "document", "state", "pages", "reason"), sorted(rows, key=itemgetter(1)))


@documents.command("show")
def show_document(document_id: DocumentId, as_json: Json = False) -> None:
    """Show all that is known of a document, and what it waits for."""
    output = Output(as_json=as_json)
    with open_api(load_settings()) as api:
        found = api.get(f"/v1/documents/{segment(document_id)}")
    output.table(("", ""), _facts(found))
    output.data(found)


def _facts(document: Mapping[str, Any]) -> list[tuple[str, object]]:
    waiting = document.get("waiting") or {}
    shown = {**document, "size": size(document["size_bytes"]), "waiting": waiting.get("sentence")}
    shown |= {f"{state} at": at for state, at in document["times"].items()}
    hidden = ("size_bytes", "times")
    return [(name, value) for name, value in shown.items() if name not in hidden and value not in (None, {})]


@documents.command("delete")
def delete_document(document_id: DocumentId, as_json: Json = False) -> None:
    """Delete a document; it stops answering at once."""
    output = Output(as_json=as_json)
    with open_api(load_settings()) as api:
        api.delete(f"/v1/documents/{segment(document_id)}")
    output.line("Deleted.")
    output.data({"id": document_id, "deleted": True})


@documents.command("retry")
def retry_document(document_id: DocumentId, as_json: Json = False) -> None:
    """Try a failed document again. Exit code 6 when it has not failed."""
    output = Output(as_json=as_json)
    with open_api(load_settings()) as api:
        api.post(f"/v1/documents/{segment(document_id)}/retry")
    output.line("Queued again.")
    output.data({"id": document_id, "retried": True})


def _exit(code: ExitCode) -> None:
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def register(app: typer.Typer) -> None:
    app.command()(ingest)
    app.command()(ask)
    app.add_typer(kb, name="kb")
    app.add_typer(documents, name="documents")
