from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from blob_store import BlobStoreContract
from killing import acknowledged_before_kill
from obstore.store import MemoryStore

from pipeline.errors import ConfigurationError, PermanentError, TransientError
from pipeline.stores import blob
from pipeline.stores.blob import ObstoreBlobStore

_WRITER = """
import os, sys, threading
from pipeline.stores.blob import ObstoreBlobStore
store = ObstoreBlobStore(sys.argv[1])
def work():
    while True:
        sys.stdout.write(store.put("doc-1", os.urandom(400_000)) + "\\n")
for _ in range(3):
    threading.Thread(target=work).start()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs in a folder"


class TestFolder(BlobStoreContract):
    @pytest.fixture
    def store(self, folder: Path) -> Iterator[ObstoreBlobStore]:
        opened = ObstoreBlobStore(folder.as_uri())
        yield opened
        opened.close()

    def test_a_local_path_is_the_stored_file(self, store: ObstoreBlobStore, folder: Path) -> None:
        with store.local_path("doc-1", store.put("doc-1", b"data")) as path:
            assert path.is_relative_to(folder)
        assert path.exists()

    def test_an_existing_blob_is_not_written_again(self, store: ObstoreBlobStore) -> None:
        with store.local_path("doc-1", store.put("doc-1", b"data")) as path:
            before = path.stat()
        store.put("doc-1", b"data")
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    def test_damaged_bytes_are_never_returned(self, store: ObstoreBlobStore) -> None:
        blob_id = store.put("doc-1", b"data")
        with store.local_path("doc-1", blob_id) as path:
            path.write_bytes(b"DATA")
        with pytest.raises(PermanentError, match="damaged") as damaged:
            store.get("doc-1", blob_id)
        assert damaged.value.code == "corrupt_blob"

    def test_a_cut_off_blob_is_repaired_by_the_next_put(self, store: ObstoreBlobStore) -> None:
        blob_id = store.put("doc-1", b"data")
        with store.local_path("doc-1", blob_id) as path:
            path.write_bytes(b"da")
        store.put("doc-1", b"data")
        assert store.get("doc-1", blob_id) == b"data"

    def test_deleting_an_area_leaves_no_trace_of_it(self, store: ObstoreBlobStore, folder: Path) -> None:
        with store.local_path("doc-1", store.put("doc-1", b"data")) as path:
            (path.parent / f"{path.name}#1").write_bytes(b"what a killed writer left")
        store.delete("doc-1")
        assert not list(folder.rglob("*doc-1*"))

    def test_a_file_that_changes_while_it_is_read_is_not_stored(
        self, store: ObstoreBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"before")
        measure = blob._measure

        def measure_then_change(file: Path) -> tuple[str, int]:
            measured = measure(file)
            file.write_bytes(b"after!")
            return measured

        monkeypatch.setattr(blob, "_measure", measure_then_change)
        with pytest.raises(TransientError, match="changed while it was read"):
            store.put_file("doc-1", path)
        assert store.list("doc-1") == []

    def test_acknowledged_blobs_survive_a_kill_and_no_half_one_is_seen(self, folder: Path) -> None:
        written = acknowledged_before_kill(_WRITER, folder.as_uri(), count=30)
        store = ObstoreBlobStore(folder.as_uri())
        assert set(written) <= set(store.list("doc-1"))
        for blob_id in store.list("doc-1"):
            assert len(store.get("doc-1", blob_id)) == 400_000


class TestObjectStore(BlobStoreContract):
    """Any other obstore store: no folder to point into."""

    @pytest.fixture
    def store(self) -> ObstoreBlobStore:
        return ObstoreBlobStore(MemoryStore())

    def test_a_local_path_is_a_copy_that_goes_away(self, store: ObstoreBlobStore) -> None:
        with store.local_path("doc-1", store.put("doc-1", b"data")) as path:
            assert path.read_bytes() == b"data"
        assert not path.exists()


@pytest.mark.parametrize("url", ["nonsense", "ftp://host/path", "file:///proc/no/such/place"])
def test_a_url_that_can_not_be_opened_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match=url):
        ObstoreBlobStore(url)
