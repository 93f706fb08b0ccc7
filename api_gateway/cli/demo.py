"""`sourcemill demo`: the whole path once, on a stack of its own, checked against what the questions expect."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from api_gateway.cli.api import Api
from api_gateway.cli.ask import run_ask
from api_gateway.cli.connection import open_api
from api_gateway.cli.credentials import load_credentials
from api_gateway.cli.detach import start_detached
from api_gateway.cli.down import stop_stack
from api_gateway.cli.files import is_owned
from api_gateway.cli.ingest import Wish, run_ingest, show_documents, show_rates
from api_gateway.cli.output import ExitCode, Output
from api_gateway.cli.record import StackRecord
from api_gateway.cli.wait import rates
from pipeline.errors import ConfigurationError
from pipeline.models import MessageStatus, load
from pipeline.settings import PREFIX, Settings, load_settings, process_environment

KB = "demo"
#: Settings that would lead the demo to someone's real data.
_NOT_OURS = (
    "catalog_url",
    "broker_url",
    "stream_url",
    "blob_store_url",
    "text_store_url",
    "vector_store_url",
    "url",
    "api_key",
)


@dataclass(frozen=True, slots=True)
class Question:
    """`expect` are names of files of which at least one must be cited; `abstain` means that none answers it."""

    question: str
    expect: tuple[str, ...] = ()
    abstain: bool | None = None

    def unmet(self, record: Mapping[str, Any]) -> str | None:
        """What is wrong with the answer, or None."""
        response = record["model_response"]
        if response["status"] != MessageStatus.FINISHED:
            return f"the answer {response['status']}"
        abstained = bool(record.get("abstained"))
        if self.abstain is not None and abstained is not self.abstain:
            return "it abstained" if abstained else "it answered what the documents do not say"
        cited = {PurePosixPath(citation["key"]).name for citation in response["citations"]}
        if self.expect and not cited.intersection(self.expect):
            return f"it cites {', '.join(sorted(cited)) or 'nothing'}, not {' or '.join(self.expect)}"
        return None


@dataclass(frozen=True, slots=True)
class Demo:
    """What to show and where. `keep` leaves the stack running."""

    data_dir: Path
    documents: Path
    questions: tuple[Question, ...]
    keep: bool


def load_questions(path: Path) -> tuple[Question, ...]:
    """Raises ConfigurationError."""
    try:
        return load(tuple[Question, ...], path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The questions in {path} can't be read: {error}") from error


def demo_settings(data_dir: Path) -> Settings:
    """The user's settings with fresh storage and free ports."""
    fresh = {name: str(Settings.model_fields[name].default) for name in _NOT_OURS}
    wanted = fresh | {"data_dir": str(data_dir), "port": "0", "flower_port": "0"}
    return load_settings(process_environment() | {PREFIX + name.upper(): value for name, value in wanted.items()})


def run_demo(demo: Demo, output: Output) -> ExitCode:
    settings = demo_settings(demo.data_dir)
    _clear(settings)
    output.line(f"Starting the stack on {settings.data_dir}, on free ports.")
    begun = time.monotonic()
    record = start_detached(settings)
    try:
        output.line(f"Ready in {time.monotonic() - begun:.1f} s.")
        with open_api(settings) as api:
            problems = _ingest(api, demo, output) + _ask_all(api, demo.questions, output)
        _say_where(settings, record, demo, output)
    except BaseException:
        stop_stack(settings)
        raise
    if not demo.keep:
        stop_stack(settings)
        output.line("Stopped.")
    for problem in problems:
        output.remark(f"Not as expected: {problem}", style="red")
    output.data({"problems": problems, "url": record.url})
    return ExitCode.FAILED if problems else ExitCode.OK


def _clear(settings: Settings) -> None:
    """Also what an interrupted demo left."""
    if is_owned(settings.data_dir):
        stop_stack(settings)
    if settings.data_dir.exists():
        shutil.rmtree(settings.data_dir)


def _ingest(api: Api, demo: Demo, output: Output) -> list[str]:
    output.line(f"\nIngesting {demo.documents}")
    kb = api.post("/v1/knowledge-bases", {"name": KB})
    limit = demo_settings(demo.data_dir).max_file_bytes
    root = demo.documents if demo.documents.is_dir() else demo.documents.parent
    result = run_ingest(api, kb, Wish((demo.documents,), root, limit, wait=True), output)
    show_documents(result.documents or [], output)
    show_rates(rates(result.documents or []), output)
    return [f"{key}: {reason}" for key, reason in result.failures]


def _ask_all(api: Api, questions: Sequence[Question], output: Output) -> list[str]:
    problems = []
    for question in questions:
        output.line(f"\n> {question.question}", style="bold cyan")
        problem = question.unmet(run_ask(api, question.question, [KB], output))
        if problem:
            problems.append(f"“{question.question}”: {problem}")
    return problems


def _say_where(settings: Settings, record: StackRecord, demo: Demo, output: Output) -> None:
    credentials = load_credentials(settings.data_dir)
    if credentials is None:
        raise ConfigurationError(f"{settings.data_dir} lost its credentials.")
    output.line("\nWhile it runs:" if demo.keep else "\nWhile it ran (KEEP=1 keeps it running):")
    output.line(f"API docs  {record.url}/docs  (key {credentials.api_key})")
    output.line(f"Flower    {record.flower_url}  ({credentials.flower_user} / {credentials.flower_password})")
    if demo.keep:
        program = Path(sys.executable).with_name("sourcemill")
        output.line("It keeps running. To use it from a shell, and to stop it:")
        output.line(f"  export SOURCEMILL_DATA_DIR={settings.data_dir}\n  {program} down")
