"""Generator and StructuredModel on any server that speaks OpenAI's chat completions."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jiter

from pipeline.errors import ConfigurationError, PermanentError, TransientError
from pipeline.inference.ports import GenerationRequest, Reply
from pipeline.inference.prompt import answer_messages
from pipeline.inference.tokens import TokenCounter, token_counter
from pipeline.models import ChatMessage, Draft, DraftCitation

if TYPE_CHECKING:
    from pipeline.inference.openai_client import OpenAiClient

MAX_ANSWER_TOKENS = 4000
_MAX_NUMBER = 10**6
#: A server that does not keep to the token limit is stopped here.
MAX_REPLY_CHARS = 16 * MAX_ANSWER_TOKENS
MAX_SOURCE_TOKENS = 16_000
#: A partial answer is parsed from its start each time, so this also bounds the work.
_MIN_PARSE_S = 0.05

_BASE_URLS = {
    "openai": "https://api.openai.com/v1",
    "ollama": "http://localhost:11434/v1",
    "vllm": "http://localhost:8000/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
}

#: The reply that we ask for. Every field is required, as strict JSON schema modes demand.
ANSWER_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "response": {"type": "string"},
        "citations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "marker": {"type": "integer"},
                    "source_index": {"type": "integer"},
                    "page_number": {"type": ["integer", "null"]},
                    "cited_text": {"type": "string"},
                },
                "required": ["marker", "source_index", "page_number", "cited_text"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["response", "citations"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class ModelAddress:
    """Where a model is: `model` as the server calls it, `base_url` up to and without `/chat/completions`."""

    provider: str
    model: str
    base_url: str


def parse_model(name: str, base_url: str = "") -> ModelAddress:
    """The address of `provider/model`; `base_url`, when given, wins over the provider's own.

    Raises ConfigurationError that says which setting to change.
    """
    provider, _, model = name.strip().partition("/")
    if not provider or not model:
        raise ConfigurationError(f"SOURCEMILL_MODEL is {name!r}; write provider/model, for example openai/gpt-4o-mini.")
    url = base_url or _BASE_URLS.get(provider, "")
    if not url:
        known = ", ".join(_BASE_URLS)
        raise ConfigurationError(
            f"The provider {provider!r} of {name!r} is unknown (known: {known}). "
            "Set SOURCEMILL_MODEL_BASE_URL to the address of its OpenAI-compatible API."
        )
    return ModelAddress(provider, model, url.rstrip("/"))


class OpenAiGenerator:
    """Asks once: whoever calls it owns the retries. Safe to use from several threads.

    `stream` raises, besides what the port says: TransientError `stream_cut` when the connection breaks in
    the middle (the last draft is yielded before; a caller that is out of attempts may keep it as an incomplete
    answer), `provider_silent` when nothing comes for `timeout_s`, `provider_limited` with `retry_after_s`;
    PermanentError `provider_refused_key`, `unknown_model`, `provider_rejected_request`, `malformed_reply`.
    A reply that ends at its length limit, or without its end, is a last draft with `complete` False.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str = "",
        timeout_s: float = 60.0,
        max_source_tokens: int = MAX_SOURCE_TOKENS,
    ) -> None:
        self._name = model
        self._address = parse_model(model, base_url)
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._max_source_tokens = max_source_tokens

    @property
    def name(self) -> str:
        return self._name

    def warm(self) -> None:
        _ = self._client, self._tokens

    def stream(self, request: GenerationRequest) -> Iterator[Draft]:
        messages = answer_messages(request, self._max_source_tokens, self._tokens.count)
        reply = _Reply(time.monotonic)
        try:
            with closing(self._pieces(messages, request.params.temperature)) as pieces:
                for text in pieces:
                    draft = reply.add(text)
                    if draft:
                        yield draft
        except TransientError:
            if reply.has_news:
                yield reply.partial()
            raise
        yield reply.last()

    def _pieces(self, messages: Sequence[ChatMessage], temperature: float) -> Generator[str, None, None]:
        """The reply's text as it comes, up to a length that no answer within the token limit has."""
        chars = 0
        for text in self._client.stream(messages, ANSWER_SCHEMA, temperature, MAX_ANSWER_TOKENS):
            yield text
            chars += len(text)
            if chars > MAX_REPLY_CHARS:
                return

    def complete(self, messages: Sequence[ChatMessage], reply: type[Reply], *, max_tokens: int) -> Reply:
        return self._client.complete(messages, reply, max_tokens)

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.close()

    @cached_property
    def _client(self) -> OpenAiClient:
        # The SDK takes most of a second to import, which only processes that ask a model should pay.
        from pipeline.inference.openai_client import OpenAiClient  # noqa: PLC0415

        return OpenAiClient(self._address, self._api_key, self._timeout_s)

    @cached_property
    def _tokens(self) -> TokenCounter:
        return token_counter()


class _Reply:
    """The JSON text of a reply as it grows."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._parts: list[str] = []
        self._parsed_at = float("-inf")
        self._shown = ""
        self.has_news = False

    def add(self, text: str) -> Draft | None:
        """The draft so far, when its text has grown and the last look at it is long enough ago."""
        self._parts.append(text)
        self.has_news = True
        if self._clock() - self._parsed_at < _MIN_PARSE_S:
            return None
        draft = self.partial()
        is_longer = draft.response != self._shown
        self._shown = draft.response
        return draft if is_longer else None

    def partial(self) -> Draft:
        self._parsed_at = self._clock()
        self.has_news = False
        return _draft(self._parse("trailing-strings"), complete=False)

    def last(self) -> Draft:
        """Complete, or incomplete when the JSON has no end. Raises PermanentError `malformed_reply`."""
        try:
            whole = self._parse(False)
        except PermanentError:
            draft = self.partial()
            if not draft.response:
                raise
            return draft
        return _draft(whole, complete=True)

    def _parse(self, partial_mode: Any) -> Any:
        """Raises PermanentError `malformed_reply` for text that is no beginning of a JSON value either."""
        data = "".join(self._parts).lstrip().encode("utf-8", "replace")
        if not data and partial_mode:
            return {}
        try:
            return jiter.from_json(data, partial_mode=partial_mode)
        except ValueError as error:
            raise PermanentError(
                "The model's reply is not the JSON that was asked for.", code="malformed_reply"
            ) from error


def _draft(parsed: Any, *, complete: bool) -> Draft:
    response = parsed.get("response", "") if isinstance(parsed, dict) else None
    if not isinstance(response, str) or (complete and "response" not in parsed):
        raise PermanentError("The model's reply has no text under `response`.", code="malformed_reply")
    citations = _citations(parsed.get("citations"), complete=complete)
    return Draft(response, citations, complete=complete, abstained=complete and not citations)


def _citations(claimed: Any, *, complete: bool) -> tuple[DraftCitation, ...]:
    """The citations that are all there; the last one of a partial reply may not be."""
    if not isinstance(claimed, list):
        return ()
    whole = claimed if complete else claimed[:-1]
    return tuple(citation for each in whole if (citation := _citation(each)))


def _citation(claimed: Any) -> DraftCitation | None:
    if not isinstance(claimed, dict):
        return None
    marker, source = _whole(claimed.get("marker")), _whole(claimed.get("source_index"))
    text = claimed.get("cited_text")
    if marker is None or source is None or not isinstance(text, str):
        return None
    return DraftCitation(marker, source, text, _whole(claimed.get("page_number")))


def _whole(value: Any) -> int | None:
    """A number that can be a marker, an index or a page."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MAX_NUMBER else None
