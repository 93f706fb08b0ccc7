"""`sourcemill demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api_gateway.cli.demo import Demo, Question, load_questions, run_demo
from api_gateway.cli.options import Json
from api_gateway.cli.output import Output
from api_gateway.cli.signals import ended_by_signals
from pipeline.errors import ConfigurationError

#: Samples are part of the repository, not of the installed package.
SAMPLES = Path("deploy/samples")


def demo(
    docs: Annotated[Path | None, typer.Option(help="A file or folder of your own instead of the samples.")] = None,
    ask: Annotated[list[str] | None, typer.Option(help="A question of your own; may be repeated.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running at the end.")] = False,
    data_dir: Annotated[Path, typer.Option(help="Emptied first.")] = Path("build/demo"),
    as_json: Json = False,
) -> None:
    """Start a fresh stack, ingest documents, ask questions, show answers and citations, stop.

    Exit code 1 when a document failed or an answer to a sample's question is not as expected.
    """
    documents = docs or SAMPLES / "documents"
    if not documents.exists():
        raise ConfigurationError(f"{documents} does not exist: run this in the repository, or name --docs.")
    wanted = Demo(data_dir.absolute(), documents, _questions(docs, ask), keep)
    with ended_by_signals():
        code = run_demo(wanted, Output(as_json=as_json))
    raise typer.Exit(code)


def _questions(docs: Path | None, ask: list[str] | None) -> tuple[Question, ...]:
    """The samples' questions make sense for the samples only."""
    if ask:
        return tuple(Question(text) for text in ask if text.strip())
    return () if docs else load_questions(SAMPLES / "questions.json")


def register(app: typer.Typer) -> None:
    app.command()(demo)
