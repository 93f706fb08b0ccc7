"""What holds for every request: its id, its log line, default headers, the limit on its body, the last resort."""

from __future__ import annotations

import re
import time
from collections.abc import MutableMapping
from typing import Any
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api_gateway.errors import internal_error

log = structlog.get_logger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

#: What uvicorn's peers write for a client that went away before it had its answer.
_CLIENT_CLOSED = 499


class RequestLog:
    """Outermost. Takes over a caller's X-Request-ID when it is harmless, and answers what nothing else caught."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=exchange.request_id)
        try:
            await self._app(scope, receive, exchange.send)
        except ClientDisconnect:
            exchange.status = _CLIENT_CLOSED
        # The edge of the process: whatever was not foreseen becomes a log entry and a 500 that tells nothing.
        except Exception:
            log.exception("request failed unexpectedly")
            if not exchange.started:
                await internal_error(Request(scope))(scope, receive, exchange.send)
        finally:
            exchange.log()


class _Exchange:
    """One request and how its answer goes."""

    def __init__(self, scope: Scope, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        self.request_id = given if _REQUEST_ID.fullmatch(given) else uuid4().hex
        self.status = _CLIENT_CLOSED
        self.started = False
        self._scope = scope
        self._state: MutableMapping[str, Any] = scope.setdefault("state", {})
        self._send = send
        self._began = time.perf_counter()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-ID"] = self.request_id
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)

    def log(self) -> None:
        route = self._scope.get("route")
        log.info(
            "request",
            method=self._scope["method"],
            route=getattr(route, "path", None),
            tenant_id=self._state.get("tenant_id"),
            status=self.status,
            milliseconds=round((time.perf_counter() - self._began) * 1000, 1),
        )


class BodyLimit:
    """Bounds a request's body while it arrives. A route that takes more says so with `allow_body`."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["max_body_bytes"] = self._max_bytes
        declared, received = Headers(scope=scope).get("content-length", "0"), 0

        async def receive_bounded() -> Message:
            nonlocal received
            _check(int(declared) if declared.isdecimal() else 0, state["max_body_bytes"])
            message = await receive()
            received += len(message.get("body", b""))
            _check(received, state["max_body_bytes"])
            return message

        await self._app(scope, receive_bounded, send)


def allow_body(scope: Scope, max_bytes: int) -> None:
    """Let the request that is being handled have a body of up to `max_bytes`."""
    scope["state"]["max_body_bytes"] = max_bytes


def _check(size: int, max_bytes: int) -> None:
    # An HTTPException, because FastAPI answers 400 to anything else that is raised while it reads a body.
    if size > max_bytes:
        raise HTTPException(413, f"The body of this request may have {max_bytes} bytes at most.")
