from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killing import acknowledged_before_kill
from vector_store import DIMENSION, VectorStoreContract, found, put_each, unit

from pipeline.errors import ConfigurationError, StoreUnavailableError
from pipeline.stores.vector_edge import EdgeVectorStore

_WRITER = """
import sys, threading
from pathlib import Path
from vector_store import DIMENSION, put_each
import pipeline.stores.vector_edge as vector_edge
vector_edge._FLUSH_EVERY_POINTS = 200
store = vector_edge.EdgeVectorStore(Path(sys.argv[1]), "model", DIMENSION)
def work(worker):
    for number in range(100_000):
        ids = [f"w{worker}-{number}-{part}" for part in range(10)]
        put_each(store, ids)
        sys.stdout.write(" ".join(ids) + "\\n")
for worker in range(3):
    threading.Thread(target=work, args=(worker,)).start()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "vectors"


@pytest.fixture
def store(folder: Path) -> Iterator[EdgeVectorStore]:
    opened = EdgeVectorStore(folder, "model", DIMENSION)
    yield opened
    opened.close()


class TestEdgeVectorStore(VectorStoreContract):
    @pytest.fixture
    def reopen(self, folder: Path) -> Callable[[], EdgeVectorStore]:
        return lambda: EdgeVectorStore(folder, "model", DIMENSION)


@pytest.mark.parametrize(("model", "dimension"), [("other", DIMENSION), ("model", DIMENSION * 2)])
def test_a_folder_belongs_to_one_model_and_dimension(
    store: EdgeVectorStore, folder: Path, model: str, dimension: int
) -> None:
    store.close()
    with pytest.raises(ConfigurationError, match=str(folder)):
        EdgeVectorStore(folder, model, dimension)


@pytest.mark.usefixtures("store")
def test_a_second_process_is_told_who_has_the_folder(folder: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="Another process") as refused:
        EdgeVectorStore(folder, "model", DIMENSION)
    assert str(folder) in refused.value.message
    assert refused.value.code == "store_locked"


def test_a_closed_store_refuses_work(folder: Path) -> None:
    store = EdgeVectorStore(folder, "model", DIMENSION)
    store.close()
    with pytest.raises(StoreUnavailableError):
        store.count("doc-1")


@pytest.mark.parametrize("lines", [1, 40, 150])
def test_acknowledged_vectors_survive_a_kill_between_and_after_flushes(folder: Path, lines: int) -> None:
    written = {
        chunk_id for line in acknowledged_before_kill(_WRITER, str(folder), count=lines) for chunk_id in line.split()
    }
    store = EdgeVectorStore(folder, "model", DIMENSION)
    assert written <= set(found(store, unit(1), limit=1_000_000))
    put_each(store, ["after"], document_id="doc-2")
    assert store.count("doc-2") == 1
    store.close()
