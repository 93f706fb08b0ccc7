"""The OpenAI SDK behind our two kinds of failure. Importing it takes most of a second."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, cast

import httpx2
import instructor
import openai
from instructor.core.exceptions import InstructorError
from openai import OpenAI

from pipeline.errors import PermanentError, SourcemillError, TransientError
from pipeline.inference.generator import ModelAddress
from pipeline.inference.ports import Reply
from pipeline.models import ChatMessage

_CONNECT_S = 10.0
_MAX_SHOWN_CHARS = 300
#: OpenAI's reasoning models take no temperature.
_REASONING = re.compile(r"o\d|gpt-5")
_PERMANENT = {
    401: ("provider_refused_key", "The provider refused the API key."),
    403: ("provider_refused_key", "The provider does not let this API key use the model."),
    404: ("unknown_model", "The provider does not know the model."),
}
_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})
_SERVER_ERRORS = 500
_LIMITED = 429


class OpenAiClient:
    """One server and model. The SDK's own retries are off."""

    def __init__(self, address: ModelAddress, api_key: str, timeout_s: float) -> None:
        self._address = address
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._client = OpenAI(
            # The SDK insists on a key; servers on the same machine need none.
            api_key=api_key or "none",
            base_url=address.base_url,
            timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
            max_retries=0,
        )
        self._structured = instructor.from_openai(self._client, mode=instructor.Mode.JSON_SCHEMA)

    def stream(
        self, messages: Sequence[ChatMessage], schema: Mapping[str, Any], temperature: float, max_tokens: int
    ) -> Iterator[str]:
        """Pieces of the reply's JSON text. Ends at the reply's end, also when that came at the length limit."""
        wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
        started = False
        with self._errors(lambda: started):
            stream = self._client.chat.completions.create(
                model=self._address.model,
                messages=cast("Any", _plain(messages)),
                response_format=cast("Any", wanted),
                stream=True,
                **self._limits(temperature, max_tokens),
            )
            with stream:
                for chunk in stream:
                    text = _text(chunk)
                    started = started or bool(text)
                    if text:
                        yield text

    def complete(self, messages: Sequence[ChatMessage], reply: type[Reply], max_tokens: int) -> Reply:
        with self._errors(lambda: False):
            return self._structured.chat.completions.create(
                model=self._address.model,
                messages=cast("Any", _plain(messages)),
                response_model=reply,
                max_retries=0,
                **self._limits(0.0, max_tokens),
            )

    def close(self) -> None:
        self._client.close()

    def _limits(self, temperature: float, max_tokens: int) -> dict[str, Any]:
        """OpenAI has a new name for the limit that the other servers do not know."""
        if self._address.provider != "openai":
            return {"max_tokens": max_tokens, "temperature": temperature}
        if _REASONING.match(self._address.model):
            return {"max_completion_tokens": max_tokens}
        return {"max_completion_tokens": max_tokens, "temperature": temperature}

    @contextmanager
    def _errors(self, has_started: Callable[[], bool]) -> Iterator[None]:
        try:
            yield
        except (openai.OpenAIError, httpx2.HTTPError, InstructorError) as error:
            raise self._translated(_root(error), started=has_started()) from self._cause(error)

    def _translated(self, error: BaseException, *, started: bool) -> SourcemillError:
        if isinstance(error, openai.APIStatusError):
            return self._refusal(error)
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            silent = f"{self._named} was silent for {self._timeout_s:g} s."
            return TransientError(silent, code="provider_silent")
        if isinstance(error, httpx2.TransportError) and started:
            return TransientError(f"{self._named} broke off in the middle of its reply.", code="stream_cut")
        if isinstance(error, openai.APIConnectionError | httpx2.TransportError):
            return TransientError(
                f"{self._named} can't be reached at {self._address.base_url}.", code="provider_unreachable"
            )
        if isinstance(error, openai.APIError):
            return TransientError(f"{self._named} failed: {self._shown(str(error))}", code="provider_failed")
        return PermanentError(f"{self._named} did not send the JSON that was asked for.", code="malformed_reply")

    def _refusal(self, error: openai.APIStatusError) -> SourcemillError:
        status, detail = error.status_code, self._shown(error.message)
        if status in _PERMANENT:
            code, sentence = _PERMANENT[status]
            # A provider may repeat the key that it refuses, so its own words are left out.
            return PermanentError(f"{sentence} ({self._named}, HTTP {status})", code=code)
        if status in _TRANSIENT_STATUSES or status >= _SERVER_ERRORS:
            code = "provider_limited" if status == _LIMITED else "provider_failed"
            wait_s = _retry_after_s(error.response.headers)
            return TransientError(f"{self._named} answered HTTP {status}: {detail}", code=code, retry_after_s=wait_s)
        return PermanentError(f"{self._named} answered HTTP {status}: {detail}", code="provider_rejected_request")

    @property
    def _named(self) -> str:
        return f"{self._address.provider}/{self._address.model}"

    def _shown(self, text: str) -> str:
        text = " ".join(text.split())[:_MAX_SHOWN_CHARS]
        return text.replace(self._api_key, "***") if self._api_key else text

    def _cause(self, error: BaseException) -> BaseException | None:
        """The vendor's error, unless printing it would print the key."""
        return None if self._api_key and self._api_key in repr(error) + str(error) else error


def _plain(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _text(chunk: Any) -> str:
    """A chunk's piece of the reply. Raises PermanentError when the model or a filter refused to answer."""
    if not chunk.choices:
        return ""
    choice = chunk.choices[0]
    if choice.finish_reason == "content_filter" or getattr(choice.delta, "refusal", None):
        raise PermanentError("The model refused to answer.", code="model_refused")
    return choice.delta.content or "" if choice.delta else ""


def _root(error: BaseException) -> BaseException:
    """What went wrong at the provider, out of the layers that instructor and the SDK wrap around it."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, openai.APIStatusError | openai.APITimeoutError | httpx2.HTTPError):
            return at
        at = at.__cause__ or at.__context__
    return error


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds, or an HTTP date, as RFC 9110 has them; None for anything else."""
    value = headers.get("retry-after", "")
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
