"""Documents: upload many, list, show, delete, retry, and the original bytes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from api_gateway import schemas
from api_gateway.dependencies import Access, After, Authorized, Id, Limit, NamedKnowledgeBase
from api_gateway.errors import documented, public_words
from api_gateway.middleware import allow_body
from api_gateway.uploads import UploadForm
from pipeline import models
from pipeline.errors import PermanentError, SourcemillError, TransientError
from pipeline.models import RevisionState, Submitted, Upload

log = structlog.get_logger(__name__)

in_knowledge_base = APIRouter(
    prefix="/v1/knowledge-bases/{kb}/documents", tags=["documents"], responses=documented(401, 404, 422, 503)
)
router = APIRouter(prefix="/v1/documents/{document_id}", tags=["documents"], responses=documented(401, 404, 422, 503))

#: A request may hold this many times the largest file that is allowed.
_MAX_FILES_OF_LARGEST_SIZE = 10

_FORM = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["files"],
                "properties": {
                    "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                    "keys": {"type": "array", "items": {"type": "string"}, "description": "One a file, in order."},
                    "titles": {"type": "array", "items": {"type": "string"}, "description": "One a file, in order."},
                },
            }
        }
    },
}


@in_knowledge_base.post(
    "",
    status_code=202,
    summary="Upload files",
    responses=documented(413, 415, 429),
    openapi_extra={"requestBody": _FORM},
)
async def upload_documents(request: Request, kb: NamedKnowledgeBase, caller: Authorized) -> schemas.UploadResults:
    """Each file gets its own result, so a bad one never stops the others.

    * `accepted`: its bytes are durable and its work is queued; follow it at `/v1/documents/{document_id}`.
    * `unchanged`: the document has these bytes already.
    * `error`: `code` is `too_large`, `empty_file`, `bad_key`, `bad_title` or `disk_full`; `detail` says what to do.

    A document is identified by its key, which is the file's name unless `keys` says another; other bytes under a key
    become the document's next revision. Sending the same files again is safe. With `429 overloaded` nothing was taken.
    """
    # Not a plain `def` as the other routes: a slow client would hold a thread for as long as it sends.
    settings = caller.gateway.settings
    allow_body(request.scope, _MAX_FILES_OF_LARGEST_SIZE * settings.max_file_bytes)
    folder = settings.data_dir / "uploads"
    kind = request.headers.get("content-type", "")
    form = UploadForm(kind, caller.client.resources.blobs, folder, settings.max_file_bytes)
    try:
        async for piece in request.stream():
            await run_in_threadpool(form.write, piece)
        uploads = await run_in_threadpool(form.finish)
    except BaseException:
        await run_in_threadpool(form.discard)
        raise
    return await run_in_threadpool(_submit, caller, kb.id, form, uploads)


def _submit(
    caller: Access, kb_id: str, form: UploadForm, uploads: list[Upload | SourcemillError]
) -> schemas.UploadResults:
    good = [upload for upload in uploads if isinstance(upload, Upload)]
    try:
        submitted = caller.client.submit_documents(caller.tenant_id, kb_id, good) if good else []
    except SourcemillError as error:
        # After anything else the work may be in the ledger already: bytes too many are better than bytes too few.
        if isinstance(error, PermanentError) or error.code == "overloaded":
            form.discard()
        raise
    _discard_unneeded(form, good, submitted)
    outcomes = iter(submitted)
    results = [
        _refused(key, upload) if isinstance(upload, SourcemillError) else _taken(next(outcomes))
        for key, upload in zip(form.keys(), uploads, strict=True)
    ]
    return schemas.UploadResults.of(results)


def _discard_unneeded(form: UploadForm, good: list[Upload], submitted: list[Submitted]) -> None:
    pairs = zip(good, submitted, strict=True)
    accepted = {upload.area for upload, outcome in pairs if outcome.outcome == "accepted"}
    try:
        form.discard(keep=accepted)
    except TransientError as error:
        # What was accepted stays accepted; the bytes left behind belong to nothing.
        log.warning("unneeded bytes are left in the blob store", code=error.code, reason=error.message)


def _refused(key: str, error: SourcemillError) -> schemas.UploadResult:
    code, detail = public_words(error)
    return schemas.UploadResult(key=key, outcome="error", error=schemas.UploadError(code=code, detail=detail))


def _taken(submitted: Submitted) -> schemas.UploadResult:
    return schemas.UploadResult.model_validate(
        {
            "key": submitted.key,
            "outcome": submitted.outcome,
            "document_id": submitted.document_id,
            "revision": submitted.revision,
        }
    )


@in_knowledge_base.get("", summary="List documents")
def list_documents(
    kb: NamedKnowledgeBase,
    caller: Authorized,
    after: After = "",
    limit: Limit = 100,
    state: Annotated[RevisionState | None, Query(description="Only documents in this state.")] = None,
) -> schemas.Page[schemas.Document]:
    records = caller.client.resources.documents.list(caller.tenant_id, kb.id, after, limit, state=state)
    return schemas.page_of(map(schemas.Document.of, records), records, limit)


def document(document_id: Id, caller: Authorized) -> models.Document:
    """Raises NotFoundError."""
    return caller.client.resources.documents.get(caller.tenant_id, document_id)


NamedDocument = Annotated[models.Document, Depends(document)]


@router.get("", summary="Show one")
def get_document(found: NamedDocument, caller: Authorized) -> schemas.DocumentDetail:
    """Its state with times and facts; `waiting` says why it is not done yet."""
    waiting = caller.client.why_document(caller.tenant_id, found.id)
    return schemas.DocumentDetail.of(found, waiting=schemas.Waiting.of(waiting))


@router.delete("", status_code=204, summary="Delete one")
def delete_document(document_id: Id, caller: Authorized) -> None:
    """Effective at once: no question finds it any more. Its bytes and index entries are removed soon after."""
    caller.client.delete_document(caller.tenant_id, document_id)


@router.post("/retry", status_code=202, summary="Try a failed one again", responses=documented(409))
def retry_document(document_id: Id, caller: Authorized) -> schemas.DocumentDetail:
    """A document that has not failed is 409."""
    caller.client.retry_document(caller.tenant_id, document_id)
    return get_document(document(document_id, caller), caller)


@router.get(
    "/original",
    summary="Download the bytes",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def get_original(found: NamedDocument, caller: Authorized) -> FileResponse:
    """The bytes of the revision that answers, else of the latest one. Ranges work."""
    resources = caller.client.resources
    revision = resources.documents.revision(found.id, found.live_revision or found.revision)
    opened = ExitStack()
    path = opened.enter_context(resources.blobs.local_path(revision.area, revision.content_blob))
    headers = {"ETag": f'"{revision.content_blob}"', "Content-Security-Policy": "sandbox; default-src 'none'"}
    kind = revision.media_type or "application/octet-stream"
    return _BlobResponse(opened, path=path, media_type=kind, filename=_file_name(found.key), headers=headers)


class _BlobResponse(FileResponse):
    """Holds the blob until the client has it or is gone."""

    def __init__(self, opened: ExitStack, *, headers: Mapping[str, str], **more: Any) -> None:
        super().__init__(headers=headers, **more)
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._opened:
            await super().__call__(scope, receive, send)


def _file_name(key: str) -> str:
    """The last part of a key that may be a path or a URL, without what a file system or header could trip over."""
    name = PurePosixPath(key.replace("\\", "/")).name
    return "".join(c if c.isprintable() and c not in '"/:' else "_" for c in name) or "document"
