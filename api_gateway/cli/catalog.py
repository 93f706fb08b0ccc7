"""A program of its own: brings the catalog up to date and makes API keys, before any gateway runs.

`sourcemill up` and `sourcemill keys` run it as a child (see catalog_child.py), because the libraries that it needs
would double the supervisor's memory for as long as the stack runs, and delay every other command. It reads one
request as JSON from standard input and answers with one JSON object.
"""

from __future__ import annotations

import sys

import orjson

from api_gateway.cli.catalog_child import KeyRequest
from pipeline.errors import SourcemillError, UnauthorizedError
from pipeline.jobs import StepKind
from pipeline.models import load
from pipeline.settings import Settings, load_settings
from pipeline.stores.migrate import migrate
from pipeline.wiring import open_resources
from workers.policies import POLICIES


def answer(settings: Settings, request: KeyRequest) -> dict[str, str]:
    """Migrate; then make a key, unless the one that the caller holds is valid: `{}`. Raises StoreUnavailableError."""
    migrate(settings.catalog_url)
    with open_resources(settings, POLICIES) as resources:
        if request.starts_stack:
            resources.watch.forget()
            resources.ledger.restart_clocks((StepKind.AUTO_QUERY, StepKind.RETRIEVE, StepKind.GENERATE))
        try:
            resources.api_keys.authenticate(request.held)
        except UnauthorizedError:
            key_id, key = resources.api_keys.create(request.tenant, request.name)
            return {"id": key_id, "api_key": key}
    return {}


def main() -> None:
    try:
        reply: dict[str, object] = {**answer(load_settings(), load(KeyRequest, sys.stdin.buffer.read()))}
    except SourcemillError as error:
        reply = {"error": {"code": error.code, "detail": error.message}}
    sys.stdout.buffer.write(orjson.dumps(reply))


if __name__ == "__main__":
    main()
