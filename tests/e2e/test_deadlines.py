"""A worker that hangs: what waits for it ends in time, and says what it could not do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.stack import Api, running_stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ASKED = "Who keeps the lighthouse of Brindle Bay?"


def test_an_answer_that_nothing_was_searched_for_never_says_that_nothing_was_found(tmp_path: Path) -> None:
    with running_stack(tmp_path / "data", {"SOURCEMILL_RETRIEVE_DEADLINE_S": "2"}) as stack, stack.client() as http:
        api = Api(http)
        kb = api.create_kb("late")
        api.upload(kb, {"a.txt": b"Edda Marsh keeps the lighthouse of Brindle Bay."})
        api.wait_documents(kb, 60)
        store = stack.pid("store")
        os.kill(store, signal.SIGSTOP)
        try:
            record = api.answer(ASKED, kb)
        finally:
            os.kill(store, signal.SIGCONT)
        assert record["model_response"]["status"] == "failed"
        assert record["error"]["code"] == "search_unavailable"
        assert "Edda Marsh" in api.answer(ASKED, kb)["model_response"]["content"]
