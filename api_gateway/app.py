"""The HTTP gateway as an ASGI application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline

from api_gateway.dependencies import Gateway
from api_gateway.errors import install_error_handlers
from api_gateway.middleware import BodyLimit, RequestLog
from api_gateway.replay import Replay
from api_gateway.routes import documents, health, knowledge_bases, messages, threads
from api_gateway.streams import EventFeed
from pipeline.settings import Settings
from workers.client import Client, open_client

#: Of the wire format, as in `/v1`; not of the program.
_API_VERSION = "1"

#: What a body other than an upload may have, besides the question: JSON can take 12 bytes for one character of it.
_MAX_BODY_BYTES = 1024 * 1024
_MAX_BYTES_A_CHARACTER = 12

#: A file that is still arriving is written to; one that was not for so long was left by a process that was killed.
_LEFT_AFTER_S = 24 * 3600

_DESCRIPTION = """Turns piles of documents into answers whose every citation is proven.

Make a knowledge base, upload documents, begin a thread and ask. Every request names its API key in
`Authorization: Bearer <key>`; what another tenant has is not found. Every error is `application/problem+json` with a
stable `code`. Lists are paged: `next` is the `after` of the following page.
"""

_TAGS = [
    {"name": "knowledge bases", "description": "Named collections of documents."},
    {"name": "documents", "description": "Files that answer questions once they are searchable."},
    {"name": "threads", "description": "Conversations and their parameters."},
    {"name": "messages", "description": "Questions, and their answers as they are written."},
    {"name": "operation", "description": "Whether it works, and how much it has to do."},
]


def create_app(settings: Settings, client: Client | None = None) -> FastAPI:
    """The gateway on a client that the caller keeps, or on one of its own that lives as long as the server."""
    app = FastAPIOffline(
        title="Sourcemill",
        version=_API_VERSION,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        lifespan=_lifespan(settings, client),
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
    )
    for routed in (knowledge_bases, documents, threads, messages, health):
        app.include_router(routed.router)
    app.include_router(documents.in_knowledge_base)
    max_bytes = _MAX_BODY_BYTES + _MAX_BYTES_A_CHARACTER * settings.max_question_chars
    app.add_middleware(BodyLimit, max_bytes=max_bytes)
    app.add_middleware(RequestLog)
    install_error_handlers(app)
    return app


def _lifespan(settings: Settings, client: Client | None) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            opened = client or stack.enter_context(open_client(settings))
            _prepare_uploads(settings.data_dir / "uploads")
            replay = Replay(opened.resources.streams, opened.resources.conversations)
            feed = EventFeed(opened.resources.streams, replay)
            app.state.gateway = Gateway(settings, opened, replay, feed)
            try:
                yield
            finally:
                await feed.join()

    return lifespan


def _prepare_uploads(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in folder.glob("upload-*"):
        if left.stat().st_mtime < time.time() - _LEFT_AFTER_S:
            left.unlink(missing_ok=True)


def _operation_id(route: APIRoute) -> str:
    return route.name
