"""What routes ask for: the caller, proven by an API key, with all that he may reach, and things named in the path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api_gateway.replay import Replay
from api_gateway.streams import EventFeed
from pipeline.errors import UnauthorizedError
from pipeline.models import KnowledgeBase
from pipeline.settings import Settings
from workers.client import Client

_bearer = HTTPBearer(auto_error=False, description="An API key, as `sourcemill keys` or the first start printed it.")


@dataclass(frozen=True, slots=True)
class Gateway:
    """What one gateway process holds open; `app.state.gateway`."""

    settings: Settings
    client: Client
    replay: Replay
    feed: EventFeed


@dataclass(frozen=True, slots=True)
class Access:
    """One request's rights. The tenant is the key's; no body, path or header can name another."""

    tenant_id: str
    gateway: Gateway

    @property
    def client(self) -> Client:
        return self.gateway.client


def gateway(request: Request) -> Gateway:
    opened: Gateway = request.app.state.gateway
    return opened


def access(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Access:
    """Raises UnauthorizedError."""
    opened = gateway(request)
    if credentials is None or not credentials.credentials:
        raise UnauthorizedError("Send your API key in the header: Authorization: Bearer <key>.")
    caller = opened.client.resources.api_keys.authenticate(credentials.credentials)
    request.state.tenant_id = caller.tenant_id
    return Access(caller.tenant_id, opened)


Authorized = Annotated[Access, Depends(access)]

_PRINTABLE = r"^[^\x00-\x1f\x7f]+$"
Id = Annotated[str, Path(max_length=256, pattern=_PRINTABLE)]
After = Annotated[str, Query(max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$", description="`next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="The most items in one page.")]


def knowledge_base(kb: Id, caller: Authorized) -> KnowledgeBase:
    """The one that the path names by id or name. Raises NotFoundError."""
    return caller.client.resources.knowledge_bases.get(caller.tenant_id, kb)


NamedKnowledgeBase = Annotated[KnowledgeBase, Depends(knowledge_base)]
