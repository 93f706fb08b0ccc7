"""The only place where errors meet HTTP: every failure leaves as `application/problem+json` (RFC 9457).

Callers rely on `code`; `detail` is a sentence for a person. An error that we did not raise on purpose is logged with
its traceback and answered `internal_error`, without what it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from math import ceil
from typing import Any
from urllib.parse import quote

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from api_gateway.schemas import FieldProblem, Problem
from pipeline import errors

log = structlog.get_logger(__name__)

#: The first class of an error's ancestry that is in here decides.
_STATUS: Mapping[type[BaseException], HTTPStatus] = {
    errors.InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.DocumentError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.ConflictError: HTTPStatus.CONFLICT,
    errors.CancelledStepError: HTTPStatus.CONFLICT,
    errors.UnauthorizedError: HTTPStatus.UNAUTHORIZED,
    errors.TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.TransientError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SourcemillError: HTTPStatus.INTERNAL_SERVER_ERROR,
}

#: Codes that ask for another status than their class does.
_STATUS_BY_CODE = {
    "overloaded": HTTPStatus.TOO_MANY_REQUESTS,
    "unsupported_media_type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
}

_CODE_BY_STATUS = {
    HTTPStatus.BAD_REQUEST: "invalid_request",
    HTTPStatus.UNAUTHORIZED: "unauthorized",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "unsupported_media_type",
}

_DESCRIPTIONS = {
    HTTPStatus.UNAUTHORIZED: "No API key, or one that is not valid.",
    HTTPStatus.NOT_FOUND: "No such thing for the tenant of this API key.",
    HTTPStatus.CONFLICT: "The name is taken, or the state does not allow it.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Over a limit; `detail` names it.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body has another content type than this route takes.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The request is wrong; `detail` and `errors` say where.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too much work is queued; try again after `Retry-After` seconds.",
    HTTPStatus.SERVICE_UNAVAILABLE: "A part that is needed can't be reached now; the same request may work later.",
}


_OUR_FAULT = "The server failed on this request. Its log has the reason under the X-Request-ID of this answer."


def status_of(error: errors.SourcemillError) -> HTTPStatus:
    by_class = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    return _STATUS_BY_CODE.get(error.code, by_class)


def public_words(error: errors.SourcemillError) -> tuple[str, str]:
    """The code and sentence that a caller may see; for what is our own fault only that it is, and a log entry."""
    if status_of(error) is HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request failed", code=error.code, exc_info=error)
        return "internal_error", _OUR_FAULT
    return error.code, error.message


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    content = problem.model_dump(exclude_none=True)
    return JSONResponse(content, problem.status, headers=dict(headers or {}), media_type="application/problem+json")


def internal_error(request: Request) -> JSONResponse:
    """The answer to an error that is ours; the log has the traceback under the request's id."""
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    return problem_response(_problem("internal_error", status, _OUR_FAULT, request))


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(errors.SourcemillError, _on_sourcemill_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(HTTPException, _on_http_error)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries for the problems that a route answers with."""
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    content = {"application/problem+json": {"schema": schema}}
    return {status: {"description": _DESCRIPTIONS[HTTPStatus(status)], "content": content} for status in statuses}


def _on_sourcemill_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, errors.SourcemillError):  # pragma: no cover - the registration says so
        raise error
    status, (code, detail) = status_of(error), public_words(error)
    problem = _problem(code, status, detail, request)
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    if isinstance(error, errors.TransientError):
        log.warning("request refused for now", code=error.code, reason=error.message)
        headers["Retry-After"] = str(ceil(error.retry_after_s or 1.0))
    return problem_response(problem, headers)


def _on_invalid_request(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):  # pragma: no cover - the registration says so
        raise error
    found = list(_field_problems(error.errors()))
    if _has_other_content_type(request, found):
        status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        detail = "The body must be JSON with the header Content-Type: application/json."
        return problem_response(_problem("unsupported_media_type", status, detail, request))
    problem = _problem("invalid_request", HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(map(str, found)), request)
    return problem_response(problem.model_copy(update={"errors": found}))


def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):  # pragma: no cover - the registration says so
        raise error
    status = HTTPStatus(error.status_code)
    detail = f"There is no {request.method} {request.url.path} here." if error.detail == status.phrase else error.detail
    code = _CODE_BY_STATUS.get(status, "http_error")
    return problem_response(_problem(code, status, detail, request), error.headers)


def _problem(code: str, status: HTTPStatus, detail: str, request: Request) -> Problem:
    return Problem(code=code, title=status.phrase, status=status, detail=detail, instance=quote(request.scope["path"]))


def _field_problems(found: Iterable[Mapping[str, Any]]) -> Iterable[FieldProblem]:
    """What is wrong and where, without the caller's input, which may be huge or secret."""
    for each in found:
        place = ".".join(str(part) for part in each["loc"])
        yield FieldProblem(field=place, message=str(each.get("ctx", {}).get("error", each["msg"])))


def _has_other_content_type(request: Request, found: list[FieldProblem]) -> bool:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    return not is_json and any(each.field == "body" for each in found) and "content-length" in request.headers
