from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killing import acknowledged_before_kill
from records import chunk
from tantivy import Index, SchemaBuilder
from text_store import TextStoreContract, found

from pipeline.errors import ConfigurationError, StoreUnavailableError
from pipeline.stores.text_tantivy import TantivyTextStore

_WRITER = """
import sys, threading
from pathlib import Path
from records import chunk
from pipeline.stores.text_tantivy import TantivyTextStore
store = TantivyTextStore(Path(sys.argv[1]))
def work(worker):
    for number in range(10_000):
        chunk_id = f"w{worker}-{number}"
        store.put([chunk(chunk_id, "durable words")])
        sys.stdout.write(chunk_id + "\\n")
for worker in range(3):
    threading.Thread(target=work, args=(worker,)).start()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def store(folder: Path) -> Iterator[TantivyTextStore]:
    opened = TantivyTextStore(folder)
    yield opened
    opened.close()


class TestTantivyTextStore(TextStoreContract):
    @pytest.fixture
    def reopen(self, folder: Path) -> Callable[[], TantivyTextStore]:
        return lambda: TantivyTextStore(folder)


@pytest.mark.usefixtures("store")
def test_a_second_writer_is_told_who_has_the_folder(folder: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="another process") as refused:
        TantivyTextStore(folder)
    assert str(folder) in refused.value.message
    assert refused.value.code == "store_locked"


def test_a_foreign_index_is_a_configuration_error(folder: Path) -> None:
    folder.mkdir()
    builder = SchemaBuilder()
    builder.add_text_field("other")
    Index(builder.build(), path=str(folder))
    with pytest.raises(ConfigurationError, match=str(folder)):
        TantivyTextStore(folder)


def test_a_closed_store_refuses_writes_and_closes_again(folder: Path) -> None:
    store = TantivyTextStore(folder)
    store.close()
    store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        store.put([chunk("c1")])


def test_threads_share_commits(store: TantivyTextStore, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = []
    commit = store._commits._commit
    monkeypatch.setattr(
        store._commits, "_commit", lambda operations: (commits.append(len(operations)), commit(operations))
    )
    start = threading.Barrier(8)

    def put(worker: int) -> None:
        start.wait()
        store.put([chunk(f"c{worker}", "text", document_id="d")])

    threads = [threading.Thread(target=put, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.count("d") == 8
    assert sum(commits) == 8
    assert len(commits) < 8


def test_acknowledged_chunks_survive_a_kill(folder: Path) -> None:
    written = acknowledged_before_kill(_WRITER, str(folder), count=60)
    store = TantivyTextStore(folder)
    assert set(written) <= set(found(store, "durable", limit=50_000))
    store.close()
