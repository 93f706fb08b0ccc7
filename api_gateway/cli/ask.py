"""`sourcemill ask`: a question, its answer as it is written, and the proof of each citation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api_gateway.cli.api import Api
from api_gateway.cli.follow import follow
from api_gateway.cli.output import ExitCode, Output
from pipeline.errors import InvalidInputError, NotFoundError
from pipeline.models import MessageStatus

Record = Mapping[str, Any]


def ask(api: Api, question: str, kbs: Sequence[str], output: Output, model: str | None = None) -> ExitCode:
    record = run_ask(api, question, kbs, output, model)
    output.data(record)
    return exit_code(record)


def run_ask(api: Api, question: str, kbs: Sequence[str], output: Output, model: str | None = None) -> Record:
    """The final record; in text mode, everything is shown as it comes."""
    thread = api.post("/v1/threads", {"kb_ids": list(kbs) or [only_kb(api)], "model": model})
    message = api.post(f"/v1/threads/{thread['id']}/messages", {"content": question})
    view = AnswerView(output)
    try:
        record = follow(api, message["message_id"], view.on_event)
    except KeyboardInterrupt:
        output.remark("Interrupted, and the answer is cancelled.")
        raise
    view.finish(record)
    return record


def exit_code(record: Record) -> ExitCode:
    response = record["model_response"]
    if response["status"] != MessageStatus.FINISHED:
        return ExitCode.FAILED
    return ExitCode.ABSTAINED if record.get("abstained") else ExitCode.OK


def only_kb(api: Api) -> str:
    """The one knowledge base that there is. With more, a guess would answer from the wrong documents."""
    names = [kb["name"] for kb in api.pages("/v1/knowledge-bases")]
    if not names:
        raise NotFoundError("There is no knowledge base yet: make one with `sourcemill ingest PATH`.")
    if len(names) > 1:
        raise InvalidInputError(f"Name the knowledge bases with --kb: {', '.join(sorted(names))}.")
    return str(names[0])


class AnswerView:
    """Shows a message's events as text. What is on the screen is always a prefix of the answer, or started anew."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown = ""

    def on_event(self, kind: str, data: Record) -> None:
        if kind == "delta":
            self._show(self._shown + data["text"])
        elif kind == "snapshot":
            self._show(data["model_response"]["content"] or "")
        elif kind == "reset":
            self._show("")

    def _show(self, text: str) -> None:
        if not text.startswith(self._shown):
            self._output.line()
            self._output.line("The answer starts again:", style="yellow")
            self._shown = ""
        self._output.piece(text[len(self._shown) :])
        self._shown = text

    def finish(self, record: Record) -> None:
        """The rest of the answer as it was stored, then its citations and everything that limits it."""
        response = record["model_response"]
        self._show(response["content"] or "")
        self._output.line()
        for citation in response["citations"]:
            self._citation(citation)
        for line in remarks(record):
            self._output.line(line, style="yellow")

    def _citation(self, citation: Record) -> None:
        place = f"{citation['key']}, page {citation['page_number']}"
        self._output.line(f"[{citation['marker']}] {place}", style="bold")
        self._output.line(f"    “{' '.join(citation['cited_text'].split())}”")


def remarks(record: Record) -> list[str]:
    """What the reader must know beside the text: failure, what is without proof, parts that were missing."""
    lines = [f"Not verified: “{each['cited_text']}” ({each['reason']})" for each in record.get("unverified") or ()]
    lines += [f"Degraded: {each['part']}: {each['reason']} ({each['code']})" for each in record.get("degraded") or ()]
    if record.get("incomplete"):
        lines.append("Incomplete: the model stopped before the end of its answer.")
    if record.get("abstained"):
        lines.append("Abstained.")
    status = record["model_response"]["status"]
    if status != MessageStatus.FINISHED:
        lines.append(f"The answer {'was ' if status == MessageStatus.CANCELLED else ''}{status}: {_reason(record)}")
    return lines + _coverage(record)


def _reason(record: Record) -> str:
    error = record.get("error")
    return str(error["message"] if isinstance(error, Mapping) else error or "no reason given")


def _coverage(record: Record) -> list[str]:
    """Only when some sentence has no proof: a full proof needs no words."""
    coverage = record.get("coverage")
    if not coverage or record.get("abstained") or coverage["proven"] == coverage["sentences"]:
        return []
    return [f"Only {coverage['proven']} of {coverage['sentences']} sentences have a proven citation."]
