"""Which parts of a starting stack do not serve yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import httpx

from workers.policies import WORKERS


class Readiness:
    """Asks over HTTP, as a user would; a context manager."""

    def __init__(self, url: str, flower_url: str, api_key: str) -> None:
        self._url = url
        self._flower_url = flower_url
        self._client = httpx.Client(headers={"Authorization": f"Bearer {api_key}"}, timeout=2.0, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def missing(self) -> list[str]:
        """Names of processes that do not answer yet, the gateway first: the workers are seen through it."""
        gateway = [] if self._get(f"{self._url}/readyz") is not None else ["gateway"]
        flower = [] if self._get(f"{self._flower_url}/healthcheck") is not None else ["flower"]
        status = None if gateway else self._get(f"{self._url}/v1/status")
        return gateway + missing_workers(status.json()["queues"] if status is not None else None) + flower

    def _get(self, url: str) -> httpx.Response | None:
        try:
            response = self._client.get(url)
        except httpx.TransportError:
            return None
        return response if response.is_success else None


def missing_workers(queues: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Worker kinds with a queue that nobody consumes, out of `GET /v1/status`; all when there is no status yet."""
    if queues is None:
        return [kind.name for kind in WORKERS]
    idle = {row["queue"] for row in queues if row["workers"] == 0}
    return [kind.name for kind in WORKERS if idle.intersection(kind.queues)]
