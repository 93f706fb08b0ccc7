"""What every BlobStore must do. An implementation's test class gives the fixture `store`."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import InvalidInputError, NotFoundError
from pipeline.stores.ports import BlobStore

ABSENT = "0" * 64
# Examples share a store, and each implementation runs the same method: both are meant.
_SHARED_STORE = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
BAD_AREAS = ["", ".", "..", "../x", "a/../b", "/etc", "a/b", "a\x00b", "a b", "-x", "x" * 129, "é", "a#1", "a\n"]
BAD_IDS = ["", "..", "A" * 64, "0" * 63, "0" * 65, "../" + "0" * 61, "g" * 64, "0" * 64 + "\n"]


class BlobStoreContract:
    @settings(max_examples=30, deadline=None, suppress_health_check=_SHARED_STORE)
    @given(data=st.binary(max_size=5_000))
    def test_gives_back_what_it_was_given_under_its_hash(self, store: BlobStore, data: bytes) -> None:
        blob_id = store.put("doc-1", data)
        assert blob_id == hashlib.sha256(data).hexdigest()
        assert store.get("doc-1", blob_id) == data

    def test_putting_twice_changes_nothing(self, store: BlobStore) -> None:
        assert store.put("doc-1", b"same") == store.put("doc-1", b"same")
        assert len(store.list("doc-1")) == 1

    def test_areas_are_apart(self, store: BlobStore) -> None:
        blob_id = store.put("doc-1", b"data")
        assert store.list("doc-10") == store.list("doc") == []
        with pytest.raises(NotFoundError):
            store.get("doc-10", blob_id)

    def test_a_file_is_stored_as_its_bytes(self, store: BlobStore, tmp_path: Path) -> None:
        data = bytes(range(256)) * 50_000
        (tmp_path / "file").write_bytes(data)
        blob_id = store.put_file("doc-1", tmp_path / "file")
        assert blob_id == store.put("doc-1", data)
        assert store.get("doc-1", blob_id) == data

    def test_an_empty_file_is_stored(self, store: BlobStore, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        assert store.get("doc-1", store.put_file("doc-1", tmp_path / "empty")) == b""

    def test_a_file_that_is_gone_is_not_found(self, store: BlobStore, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match=r"gone\.pdf"):
            store.put_file("doc-1", tmp_path / "gone.pdf")

    def test_a_folder_is_no_file(self, store: BlobStore, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError):
            store.put_file("doc-1", tmp_path)

    def test_a_local_path_has_the_bytes_while_it_is_open(self, store: BlobStore) -> None:
        blob_id = store.put("doc-1", b"data" * 100_000)
        with store.local_path("doc-1", blob_id) as path:
            assert path.read_bytes() == b"data" * 100_000

    def test_what_is_not_there_is_not_found(self, store: BlobStore) -> None:
        with pytest.raises(NotFoundError):
            store.get("doc-1", ABSENT)
        with pytest.raises(NotFoundError), store.local_path("doc-1", ABSENT):
            pass

    def test_deletes_some_blobs(self, store: BlobStore) -> None:
        one, two = store.put("doc-1", b"one"), store.put("doc-1", b"two")
        store.delete("doc-1", [one, ABSENT])
        assert store.list("doc-1") == [two]

    def test_deletes_a_whole_area_and_no_other(self, store: BlobStore) -> None:
        store.put("doc-1", b"one")
        store.put("doc-1", b"two")
        other = store.put("doc-2", b"one")
        store.delete("doc-1")
        store.delete("never-there")
        assert (store.list("doc-1"), store.list("doc-2")) == ([], [other])

    def test_lists_in_order(self, store: BlobStore) -> None:
        ids = [store.put("doc-1", bytes([number])) for number in range(20)]
        assert store.list("doc-1") == sorted(ids)

    @pytest.mark.parametrize("area", BAD_AREAS)
    def test_an_area_is_a_plain_name(self, store: BlobStore, area: str) -> None:
        for use in (lambda: store.put(area, b""), lambda: store.list(area), lambda: store.delete(area)):
            with pytest.raises(InvalidInputError):
                use()

    @pytest.mark.parametrize("blob_id", BAD_IDS)
    def test_a_blob_id_is_a_hash(self, store: BlobStore, blob_id: str) -> None:
        with pytest.raises(InvalidInputError):
            store.get("doc-1", blob_id)
        with pytest.raises(InvalidInputError):
            store.delete("doc-1", [blob_id])

    def test_threads_put_the_same_and_different_blobs(self, store: BlobStore) -> None:
        def work(number: int) -> str:
            data = bytes([number % 5]) * 10_000
            blob_id = store.put("doc-1", data)
            assert store.get("doc-1", blob_id) == data
            return blob_id

        with ThreadPoolExecutor(8) as pool:
            ids = set(pool.map(work, range(80)))
        assert store.list("doc-1") == sorted(ids)
