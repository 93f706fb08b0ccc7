"""A thread's parameters: defaults, overrides by a message, and what is refused."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from pipeline.errors import InvalidInputError
from pipeline.models import ThreadParams

OUTPUT_LENGTHS = ("short", "medium", "long")
_NAMES = tuple(field.name for field in fields(ThreadParams))
_TEXTS = ("model", "system_message", "auto_query_model", "auto_query_guidance")
_MAX_TEXT_CHARS = 20_000
_MAX_TEMPERATURE = 2.0
_MAX_KBS = 50
_MAX_HISTORY_TOKENS = 1_000_000


def override(params: ThreadParams, given: Mapping[str, Any]) -> ThreadParams:
    """`params` with the given subset replaced; None keeps what is there.

    Raises InvalidInputError that names the parameter and what it may be.
    """
    for name in given:
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.0)[0]
            raise InvalidInputError(f"{name!r} is no parameter. Did you mean {near!r}?", code="unknown_parameter")
    values = {name: value for name, value in given.items() if value is not None}
    if "kb_ids" in values:
        values["kb_ids"] = tuple(dict.fromkeys(_kb_ids(values["kb_ids"])))
    changed = replace(params, **values)
    _check(changed)
    return changed


def _kb_ids(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(kb_id, str) for kb_id in value):
        raise _bad("kb_ids", "a list of knowledge base ids or names")
    if len(value) > _MAX_KBS:
        raise _bad("kb_ids", f"at most {_MAX_KBS} knowledge bases")
    return list(value)


def _check(params: ThreadParams) -> None:
    for name in _TEXTS:
        value = getattr(params, name)
        if not isinstance(value, str) or len(value) > _MAX_TEXT_CHARS:
            raise _bad(name, f"a text of at most {_MAX_TEXT_CHARS} characters")
    if params.target_output_length not in OUTPUT_LENGTHS:
        raise _bad("target_output_length", f"one of {', '.join(OUTPUT_LENGTHS)}")
    _check_number("temperature", params.temperature, 0.0, _MAX_TEMPERATURE)
    _check_number("max_chat_history_tokens", params.max_chat_history_tokens, 0, _MAX_HISTORY_TOKENS)
    if params.rse_params:
        raise _bad("rse_params", "empty: relevant segment extraction is not there yet")


def _check_number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _bad(name, f"a number from {low} to {high}")


def _bad(name: str, wanted: str) -> InvalidInputError:
    return InvalidInputError(f"{name} must be {wanted}.", code="bad_parameter")
