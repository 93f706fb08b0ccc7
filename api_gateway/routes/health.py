"""Is it alive, can it work, and how much does it have to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Depends

from api_gateway import schemas
from api_gateway.dependencies import Authorized, Gateway, gateway
from api_gateway.errors import documented
from pipeline.errors import SourcemillError, StoreUnavailableError

router = APIRouter(tags=["operation"])


@router.get("/healthz", summary="Is the process alive")
def is_alive() -> schemas.Health:
    return schemas.Health()


@router.get("/readyz", summary="Can it serve", responses=documented(503))
def is_ready(opened: Annotated[Gateway, Depends(gateway)]) -> schemas.Health:
    """Whether the catalog and the stream server answer.

    A broker that is down does not keep the gateway from serving: what it accepts is in the catalog, and the
    reconciler rings again.
    """
    resources = opened.client.resources
    with _needed("The catalog"):
        resources.database.check()
    with _needed("The stream server"):
        resources.streams.snapshot("readyz")
    return schemas.Health()


@router.get("/v1/status", summary="Queues and documents by state", responses=documented(401, 503))
def get_status(caller: Authorized) -> schemas.Status:
    """The tenant's work in each queue, how many live workers consume it, and its documents by state."""
    queues = [schemas.Queue.of(queue) for queue in caller.client.progress(caller.tenant_id)]
    documents = caller.client.resources.documents.counts(caller.tenant_id)
    return schemas.Status(queues=queues, documents=documents)


@contextmanager
def _needed(part: str) -> Iterator[None]:
    try:
        yield
    except SourcemillError as error:
        raise StoreUnavailableError(f"{part} is not usable: {error.message}", code="not_ready") from error
