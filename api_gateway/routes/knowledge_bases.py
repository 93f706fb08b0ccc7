"""Named collections of documents."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api_gateway import schemas
from api_gateway.dependencies import After, Authorized, Limit, NamedKnowledgeBase
from api_gateway.errors import documented

router = APIRouter(prefix="/v1/knowledge-bases", tags=["knowledge bases"], responses=documented(401, 422, 503))


@router.post("", status_code=201, summary="Make one", responses=documented(409, 413, 415))
def create_knowledge_base(
    body: schemas.KnowledgeBaseCreate, caller: Authorized, response: Response
) -> schemas.KnowledgeBase:
    """A name that the tenant has already is 409 `duplicate_name`."""
    record = caller.client.resources.knowledge_bases.create(caller.tenant_id, body.name, body.description)
    response.headers["Location"] = f"/v1/knowledge-bases/{record.id}"
    return schemas.KnowledgeBase.of(record)


@router.get("", summary="List them")
def list_knowledge_bases(
    caller: Authorized, after: After = "", limit: Limit = 100
) -> schemas.Page[schemas.KnowledgeBase]:
    records = caller.client.resources.knowledge_bases.list(caller.tenant_id, after, limit)
    return schemas.page_of(map(schemas.KnowledgeBase.of, records), records, limit)


@router.get("/{kb}", summary="Show one, by id or name", responses=documented(404))
def get_knowledge_base(kb: NamedKnowledgeBase, caller: Authorized) -> schemas.KnowledgeBaseDetail:
    counts = caller.client.resources.documents.counts(caller.tenant_id, kb.id)
    return schemas.KnowledgeBaseDetail.of(kb, documents=counts)
