"""Time as the ledger keeps it: seconds since the epoch, UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime

now = time.time


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
