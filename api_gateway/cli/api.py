"""The HTTP API as the commands use it: paging, problems as our errors, patience with a restarting gateway."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

import httpx

from api_gateway.cli.sse import ServerEvent, parse_events
from pipeline.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    SourcemillError,
    TooLargeError,
    TransientError,
    UnauthorizedError,
)

#: Once a server has answered, we outlast a restart of its gateway for this long.
PATIENCE_S = 30.0
_RETRY_S = 0.25
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)

_ERRORS: Mapping[int, type[PermanentError]] = {
    400: InvalidInputError,
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    409: ConflictError,
    413: TooLargeError,
    422: InvalidInputError,
}
_BUSY = frozenset({429, 502, 503, 504})


def segment(text: str) -> str:
    """A name or id as one part of a path, so that it leads nowhere else. InvalidInputError when it is no text."""
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{text!a} is no text.") from error


class UnreachableError(TransientError):
    """No server answers at the address."""

    default_code = "unreachable"


class Api:
    """A connection to one server with one key; a context manager. Methods raise SourcemillError subclasses."""

    def __init__(self, url: str, api_key: str, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self._answered = False
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=_TIMEOUT,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        return self._send("GET", path, params=given).json()

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        response = self._send("POST", path, json=dict(body or {}))
        return response.json() if response.content else None

    def delete(self, path: str) -> None:
        self._send("DELETE", path)

    def pages(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        """Every item behind a cursor."""
        after: str | None = None
        while True:
            page = self.get(path, after=after, **params)
            yield from page["items"]
            after = page.get("next")
            if not after:
                return

    def upload(self, kb_id: str, files: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
        """Send (key, bytes or open file) pairs; a result each, in order.

        Sending the same bytes twice is harmless, so this is repeated when the connection breaks.
        """
        parts = [("files", (key.rsplit("/", 1)[-1], content, "application/octet-stream")) for key, content in files]
        body = {"keys": [key for key, _ in files]}
        path = f"/v1/knowledge-bases/{segment(kb_id)}/documents"
        response = self._send("POST", path, data=body, files=parts, repeatable=not _has_stream(files))
        return list(response.json()["results"])

    @contextmanager
    def events(self, message_id: str, last_id: str | None) -> Iterator[Iterator[ServerEvent]]:
        """A message's events behind `last_id`. The iteration raises UnreachableError when the stream breaks."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id is not None else {})
        with (
            self._translated(),
            self._client.stream("GET", f"/v1/messages/{segment(message_id)}/events", headers=headers) as response,
        ):
            if response.is_error:
                response.read()
                raise problem(response)
            yield parse_events(response.iter_lines())

    def _send(self, method: str, path: str, *, repeatable: bool | None = None, **options: Any) -> httpx.Response:
        again = method in ("GET", "DELETE") if repeatable is None else repeatable
        deadline = time.monotonic() + (PATIENCE_S if self._answered else 0.0)
        while True:
            try:
                return self._send_once(method, path, options)
            except UnreachableError as error:
                refused = isinstance(error.__cause__, httpx.ConnectError)
                if time.monotonic() >= deadline or not (again or refused):
                    raise
                time.sleep(_RETRY_S)

    def _send_once(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        with self._translated():
            response = self._client.request(method, path, **options)
        self._answered = True
        if response.is_error:
            raise problem(response)
        return response

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise UnreachableError(
                f"{self.url} can't be reached ({error or type(error).__name__}). "
                "Start the stack with `sourcemill up`, or set SOURCEMILL_URL."
            ) from error


def _has_stream(files: Sequence[tuple[str, Any]]) -> bool:
    return any(not isinstance(content, bytes) for _, content in files)


def problem(response: httpx.Response) -> SourcemillError:
    """A problem+json answer as one of our errors, its `detail` as the message; also for other bodies."""
    detail, code = f"the server answered {response.status_code} {response.reason_phrase}", None
    if "json" in response.headers.get("content-type", ""):
        body = response.json()
        detail, code = str(body.get("detail") or detail), body.get("code")
    if response.status_code in _BUSY:
        return TransientError(detail, code=code, retry_after_s=_retry_after_s(response))
    return _ERRORS.get(response.status_code, PermanentError)(detail, code=code)


def _retry_after_s(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.replace(".", "", 1).isdigit() else None
