"""A small OpenAI-compatible server whose behaviour is chosen by the name of the model.

`quote` (the default) answers with a quote out of the first source in the prompt. The others misbehave in one
way each; see SCRIPTS. `cut+quote` plays one after the other: the first request is cut off, those after it are
answered. As a process: `python -m tests.scripted_model --port 8123`, then `SOURCEMILL_MODEL=scripted/quote` and
`SOURCEMILL_MODEL_BASE_URL=http://127.0.0.1:8123/v1`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SILENT_S = 5.0
SLOW_S = 0.03
_PIECE_CHARS = 12
_SOURCE = re.compile(r'<source index="(\d+)"[^>]*>(.*?)</source>', re.DOTALL)
_PAGE = re.compile(r'<page number="(\d+)">\n(.*?)\n</page>', re.DOTALL)
_KB_ID = re.compile(r'<knowledge_base id="([^"]*)"')

Body = Mapping[str, Any]
Script = Callable[["_Handler", Body], None]


def _prompt(body: Body) -> str:
    return "\n".join(str(message["content"]) for message in body["messages"])


def quoting_reply(body: Body) -> str:
    """JSON with the first long line of the first source's first page, quoted."""
    source = _SOURCE.search(_prompt(body))
    if source is None:
        return json.dumps({"response": "The documents do not say.", "citations": []})
    for page in _PAGE.finditer(source.group(2)):
        for line in page.group(2).splitlines():
            quote = line.strip()[:200]
            if len(quote.split()) >= 4 or len(quote.encode()) > 24:
                cited = {
                    "marker": 1,
                    "source_index": int(source.group(1)),
                    "page_number": int(page.group(1)),
                    "cited_text": quote,
                }
                said = re.sub(r"\[(\d+)", r"(\1", quote)
                return json.dumps(
                    {"response": f"The source says: {said} [1]", "citations": [cited]}, ensure_ascii=False
                )
    return json.dumps({"response": "The documents do not say.", "citations": []})


def structured_reply(body: Body) -> str:
    """One query for each knowledge base that the prompt names: the last question itself."""
    question = str(body["messages"][-1]["content"])
    queries = [{"query": question, "kb_id": kb_id} for kb_id in _KB_ID.findall(_prompt(body))]
    return json.dumps({"queries": queries}, ensure_ascii=False)


def _reply(body: Body) -> str:
    return quoting_reply(body) if body.get("stream") else structured_reply(body)


def quote(handler: _Handler, body: Body) -> None:
    handler.answer(body, _reply(body))


def slow(handler: _Handler, body: Body) -> None:
    handler.answer(body, _reply(body), pause_s=SLOW_S)


def cut(handler: _Handler, body: Body) -> None:
    """The connection dies in the middle of the reply."""
    text = _reply(body)
    handler.begin_stream()
    for piece in _pieces(text[: len(text) // 2]):
        handler.send_piece(piece)
    handler.break_connection()


def ended(handler: _Handler, body: Body) -> None:
    """The stream ends in the middle as if that were all."""
    text = _reply(body)
    handler.answer(body, text[: len(text) // 2], finish_reason=None)


def length(handler: _Handler, body: Body) -> None:
    """The reply is cut at the length limit, as the server says."""
    text = _reply(body)
    handler.answer(body, text[: len(text) * 2 // 3], finish_reason="length")


def limited(handler: _Handler, _body: Body) -> None:
    handler.refuse(429, "Rate limit reached for requests", {"Retry-After": "7"})


def refused(handler: _Handler, _body: Body) -> None:
    """Like OpenAI, it repeats the key that it refuses."""
    handler.refuse(401, f"Incorrect API key provided: {handler.headers.get('Authorization', '')}")


def unknown(handler: _Handler, body: Body) -> None:
    handler.refuse(404, f"The model `{body['model']}` does not exist")


def rejected(handler: _Handler, _body: Body) -> None:
    handler.refuse(400, "max_tokens is too large")


def broken(handler: _Handler, _body: Body) -> None:
    handler.refuse(503, "The server is overloaded", {"Retry-After": "1.5"})


def malformed(handler: _Handler, body: Body) -> None:
    handler.answer(body, "I would rather answer in prose.")


def silent(handler: _Handler, _body: Body) -> None:
    """Begins, and says no more."""
    handler.begin_stream()
    handler.send_piece('{"response": "One moment')
    handler.stop_requested.wait(SILENT_S)


def unheard(handler: _Handler, _body: Body) -> None:
    """Never even begins."""
    handler.stop_requested.wait(SILENT_S)
    handler.close_connection = True


def invented(handler: _Handler, body: Body) -> None:
    """Quotes what no source says."""
    cited = {"marker": 1, "source_index": 0, "page_number": 1, "cited_text": "This sentence is in no document at all."}
    handler.answer(body, json.dumps({"response": "It is so [1].", "citations": [cited]}))


SCRIPTS: dict[str, Script] = {
    script.__name__: script
    for script in (
        *(quote, slow, cut, ended, length, limited, refused, unknown, rejected, broken, malformed, silent, unheard),
        invented,
    )
}


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + _PIECE_CHARS] for at in range(0, len(text), _PIECE_CHARS))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    @property
    def stop_requested(self) -> threading.Event:
        return self.server.stop_requested

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self.refuse(404, "No such path")
            return
        try:
            self.server.script(body)(self, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def answer(self, body: Body, text: str, *, pause_s: float = 0.0, finish_reason: str | None = "stop") -> None:
        if not body.get("stream"):
            self._send_json(200, _completion(body, {"message": {"role": "assistant", "content": text}}, finish_reason))
            return
        self.begin_stream()
        for piece in _pieces(text):
            self.send_piece(piece)
            self.stop_requested.wait(pause_s)
        if finish_reason:
            self._send_chunk(_completion(body, {"delta": {}}, finish_reason))
        self._send_line("data: [DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_piece(self, text: str) -> None:
        self._send_chunk(_completion({}, {"delta": {"role": "assistant", "content": text}}, None))

    def break_connection(self) -> None:
        self.wfile.flush()
        self.close_connection = True

    def refuse(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        error = {"error": {"message": message, "type": "scripted", "code": None, "param": None}}
        self._send_json(status, error, headers or {})

    def _send_chunk(self, data: Mapping[str, Any]) -> None:
        self._send_line(f"data: {json.dumps(data)}")

    def _send_line(self, line: str) -> None:
        data = f"{line}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _send_json(self, status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # http.server's name
        """Tests want no log."""


def _completion(body: Body, choice: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    kind = "chat.completion.chunk" if "delta" in choice else "chat.completion"
    return {
        "id": "scripted",
        "object": kind,
        "created": int(time.time()),
        "model": body.get("model", "scripted"),
        "choices": [{"index": 0, **choice, "finish_reason": finish_reason}],
        "usage": None if "delta" in choice else {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, scripts: Mapping[str, Script]) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.scripts = {**SCRIPTS, **scripts}
        self.requests: list[Body] = []
        self.stop_requested = threading.Event()
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is part of the play; anything else is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def script(self, body: Body) -> Script:
        names = body["model"].split("+")
        with self._lock:
            self.requests.append(body)
            turn = self._asked[body["model"]]
            self._asked[body["model"]] += 1
        return self.scripts.get(names[min(turn, len(names) - 1)], unknown)


@dataclass(frozen=True)
class ScriptedModel:
    """A running server; `requests` are the bodies that it got, in order."""

    base_url: str
    requests: list[Body] = field(default_factory=list)


@contextmanager
def scripted_model(port: int = 0, scripts: Mapping[str, Script] | None = None) -> Iterator[ScriptedModel]:
    """Serves on a free port of the loopback interface while the context is open."""
    server = _Server(port, scripts or {})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield ScriptedModel(f"http://127.0.0.1:{server.server_address[1]}/v1", server.requests)
    finally:
        server.stop_requested.set()
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    with scripted_model(parser.parse_args().port) as server:
        print(server.base_url, flush=True)  # noqa: T201  # the caller reads the port that was free
        threading.Event().wait()


if __name__ == "__main__":
    main()
