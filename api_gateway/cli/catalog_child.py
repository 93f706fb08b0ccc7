"""Asks catalog.py, in a process of its own, for a migrated catalog and an API key."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from api_gateway.cli.services import base_environment
from pipeline.errors import ConfigurationError
from pipeline.models import dump
from pipeline.settings import Settings, child_environment

#: The embedded stack begins with one tenant; `sourcemill keys create --tenant` makes others.
TENANT = "default"


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A key is made unless `held` is valid already; an empty one never is.

    `starts_stack` says that no worker of this catalog lives, whatever the last stack left written.
    """

    name: str
    tenant: str = TENANT
    held: str = ""
    starts_stack: bool = False


def request_key(settings: Settings, request: KeyRequest) -> Mapping[str, Any]:
    """The new key as `id` and `api_key`, or nothing when `held` is valid. The catalog is migrated on the way.

    Raises ConfigurationError with the child's code and words: a stack can't start on a catalog that can't be used.
    """
    child = subprocess.run(
        (sys.executable, "-m", "api_gateway.cli.catalog"),
        env=base_environment() | child_environment(settings),
        input=dump(request),
        capture_output=True,
        check=False,
    )
    if child.returncode != 0:
        words = child.stderr.decode(errors="replace").strip()
        raise ConfigurationError(f"The catalog can't be prepared:\n{words}")
    reply: dict[str, Any] = orjson.loads(child.stdout)
    if "error" in reply:
        raise ConfigurationError(reply["error"]["detail"], code=reply["error"]["code"])
    return reply
