"""The public wire format: what a request may hold and what an answer looks like. Separate from our records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pipeline import models
from pipeline.models import MessageStatus, RevisionState, ThreadParams

Item = TypeVar("Item")

_EXAMPLE_ID = "5f0c2b7a9d3e4c1f8a6b0d2e4f6a8c0b"
_NOW = "2026-01-05T09:30:00Z"


def _storable(text: str) -> str:
    r"""JSON can spell what no UTF-8 and no database can hold: `"\u0000"` and half of a surrogate pair."""
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("must not contain NUL or half of a surrogate pair")
    return text


Text = Annotated[str, AfterValidator(_storable)]


class Request(BaseModel):
    """An unknown field is an error: a typo must not be ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class FieldProblem(BaseModel):
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Problem(BaseModel):
    """An error (RFC 9457). `code` is stable; `detail` is for people and may change."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "code": "unknown_document",
                "title": "Not Found",
                "status": 404,
                "detail": "No document 'abc'.",
                "instance": "/v1/documents/abc",
            }
        }
    )

    code: str
    title: str
    status: int
    detail: str
    instance: str
    errors: list[FieldProblem] | None = None


class Page(BaseModel, Generic[Item]):
    """`next`, when there is one, is the `after` of the following page."""

    items: list[Item]
    next: str | None = None


class Waiting(BaseModel):
    """Why it is not done yet."""

    sentence: str
    cause: str
    position: int | None = None
    eta_s: float | None = None

    @classmethod
    def of(cls, waiting: models.Waiting | None) -> Self | None:
        if waiting is None:
            return None
        return cls(sentence=waiting.sentence, cause=waiting.cause, position=waiting.position, eta_s=waiting.eta_s)


class KnowledgeBaseCreate(Request):
    model_config = ConfigDict(json_schema_extra={"example": {"name": "handbook", "description": "Company handbook"}})

    name: Text = Field(description="Unique for the tenant; it can be used instead of the id everywhere.")
    description: Text = Field(default="", max_length=4000)


class KnowledgeBase(BaseModel):
    id: str = Field(examples=[_EXAMPLE_ID])
    name: str = Field(examples=["handbook"])
    description: str
    created_at: datetime

    @classmethod
    def of(cls, record: models.KnowledgeBase, **more: Any) -> Self:
        own = {"id": record.id, "name": record.name, "description": record.description}
        return cls(**own, created_at=record.created_at, **more)


class KnowledgeBaseDetail(KnowledgeBase):
    documents: dict[str, int] = Field(description="How many documents are in each state.", examples=[{"ready": 12}])


class Document(BaseModel):
    """The latest revision's facts. `live_revision` is the one that answers questions, if any does."""

    id: str = Field(examples=[_EXAMPLE_ID])
    kb_id: str
    key: str = Field(description="The caller's name of it, unique in its knowledge base.", examples=["leave.pdf"])
    title: str
    state: RevisionState
    revision: int
    live_revision: int | None
    media_type: str | None
    size_bytes: int
    page_count: int | None
    chunk_count: int | None
    char_count: int | None
    missing_pages: dict[str, str] = Field(description="Pages that could not be read, with the reason.")
    error_code: str | None
    error: str | None
    created_at: datetime
    times: dict[str, datetime] = Field(description="When it entered each state.", examples=[{"queued": _NOW}])

    @classmethod
    def of(cls, record: models.Document, **more: Any) -> Self:
        names = (name for name in cls.model_fields if name not in more)
        return cls(**{name: getattr(record, name) for name in names}, **more)


class DocumentDetail(Document):
    waiting: Waiting | None = Field(description="Why it is not done; null when it is.")


class UploadError(BaseModel):
    code: str = Field(examples=["too_large"])
    detail: str


class UploadResult(BaseModel):
    """What became of one file. The bytes of an accepted one are durable and its work is queued."""

    key: str
    outcome: Literal["accepted", "unchanged", "error"]
    document_id: str | None = None
    revision: int | None = None
    error: UploadError | None = None


class UploadResults(BaseModel):
    """One result a file, in the order of the files."""

    results: list[UploadResult]
    accepted: int
    unchanged: int
    failed: int

    @classmethod
    def of(cls, results: list[UploadResult]) -> Self:
        outcomes = [result.outcome for result in results]
        count = outcomes.count
        return cls(results=results, accepted=count("accepted"), unchanged=count("unchanged"), failed=count("error"))


class ThreadOverrides(Request):
    """Any subset of a thread's parameters, with dsRAG's names. The values are checked in pipeline/chat/params.py."""

    kb_ids: list[Text] | None = Field(default=None, description="Ids or names of knowledge bases; at most 50.")
    model: Text | None = Field(default=None, description="`extractive` or `provider/model`; else the server's default.")
    temperature: float | None = Field(default=None, description="From 0 to 2.")
    system_message: Text | None = None
    auto_query_model: Text | None = Field(default=None, description="The model that writes search queries.")
    auto_query_guidance: Text | None = None
    target_output_length: Text | None = Field(default=None, description="`short`, `medium` or `long`.")
    max_chat_history_tokens: int | None = Field(default=None, description="At least 0.")
    rse_params: dict[Text, bool | int | float | Text | None] | None = None

    def given(self) -> dict[str, Any]:
        """The parameters that the request names; null means the same as leaving it out."""
        return {name: getattr(self, name) for name in ThreadOverrides.model_fields if getattr(self, name) is not None}


class ThreadCreate(ThreadOverrides):
    model_config = ConfigDict(json_schema_extra={"example": {"kb_ids": ["handbook"], "target_output_length": "short"}})


class Thread(BaseModel):
    id: str = Field(examples=[_EXAMPLE_ID])
    params: dict[str, Any]
    created_at: datetime

    @classmethod
    def of(cls, record: models.Thread, **more: Any) -> Self:
        params = {name: getattr(record.params, name) for name in ThreadParams.__dataclass_fields__}
        return cls(id=record.id, params=params, created_at=record.created_at, **more)


class ThreadDetail(Thread):
    interactions: list[dict[str, Any]] = Field(description="Question and answer of each message, oldest first.")


class MessageCreate(ThreadOverrides):
    """A question, and parameters that hold for its answer only."""

    model_config = ConfigDict(json_schema_extra={"example": {"content": "How many days of leave do I have?"}})

    content: Text = Field(description="The question.")


class MessageAccepted(BaseModel):
    message_id: str = Field(examples=[_EXAMPLE_ID])
    thread_id: str
    status: MessageStatus


class MessageDetail(BaseModel):
    """The interaction record so far; complete once the status of `model_response` is final.

    `seq` is the last event that is in it: follow with `/events?after={seq}`.
    """

    model_config = ConfigDict(extra="allow")

    message_id: str = Field(examples=[_EXAMPLE_ID])
    thread_id: str
    epoch: int
    seq: int
    user_input: dict[str, Any] = Field(examples=[{"content": "How many days of leave do I have?", "timestamp": _NOW}])
    model_response: dict[str, Any] = Field(
        examples=[{"content": "25 days [1].", "citations": [], "status": "finished", "timestamp": _NOW}]
    )
    search_queries: list[Any]
    relevant_segments: list[Any]
    waiting: Waiting | None


class Queue(BaseModel):
    queue: str = Field(examples=["extract"])
    ready: int
    running: int
    dead: int
    workers: int

    @classmethod
    def of(cls, status: models.QueueStatus) -> Self:
        return cls(
            queue=status.queue,
            ready=status.ready,
            running=status.running,
            dead=status.dead,
            workers=status.workers,
        )


class Status(BaseModel):
    queues: list[Queue]
    documents: dict[str, int] = Field(description="How many documents are in each state.", examples=[{"ready": 12}])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


def page_of(items: Iterable[Item], records: list[Any], limit: int) -> Page[Item]:
    """A page whose cursor is the id of its last record, when there may be more after it."""
    return Page(items=list(items), next=records[-1].id if len(records) == limit else None)
