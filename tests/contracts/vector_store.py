"""What every VectorStore must do. An implementation's test class gives the fixtures `store` and `reopen`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from records import SCOPE, chunk

from pipeline.errors import InvalidInputError
from pipeline.models import Scope
from pipeline.stores.ports import Vectors, VectorStore

DIMENSION = 8


def unit(*components: float) -> Vectors:
    """A vector of length 1 whose first components are these, in proportion."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(components)] = components
    return vector / np.linalg.norm(vector)


def rows(*vectors: Vectors) -> Vectors:
    return np.stack(vectors)


def found(store: VectorStore, vector: Vectors, scope: Scope = SCOPE, limit: int = 10) -> list[str]:
    return [hit.chunk_id for hit in store.search(vector, scope, limit)]


def put_each(store: VectorStore, ids: Sequence[str], **facts: object) -> None:
    store.put([chunk(chunk_id, **facts) for chunk_id in ids], np.tile(unit(1), (len(ids), 1)))


class VectorStoreContract:
    def test_finds_the_nearest_first_with_its_cosine(self, store: VectorStore) -> None:
        store.put([chunk("far"), chunk("near"), chunk("between")], rows(unit(0, 1), unit(1), unit(1, 1)))
        hits = store.search(unit(1), SCOPE, 10)
        assert [hit.chunk_id for hit in hits] == ["near", "between", "far"]
        assert [hit.score for hit in hits] == pytest.approx([1.0, 0.7071, 0.0], abs=1e-3)

    def test_a_hit_names_its_document_and_revision(self, store: VectorStore) -> None:
        store.put([chunk("c1", document_id="doc-7", revision=3)], rows(unit(1)))
        (hit,) = store.search(unit(1), SCOPE, 10)
        assert (hit.chunk_id, hit.document_id, hit.revision) == ("c1", "doc-7", 3)

    def test_putting_twice_changes_nothing(self, store: VectorStore) -> None:
        for _ in range(2):
            put_each(store, ["c1", "c2"])
        assert found(store, unit(1)) == ["c1", "c2"]
        assert store.count("doc-1") == 2

    def test_a_put_replaces_the_vector_of_that_id(self, store: VectorStore) -> None:
        store.put([chunk("c1"), chunk("c2")], rows(unit(1), unit(1, 1)))
        store.put([chunk("c1")], rows(unit(0, 1)))
        assert found(store, unit(1)) == ["c2", "c1"]

    def test_putting_nothing_is_allowed(self, store: VectorStore) -> None:
        store.put([], np.zeros((0, DIMENSION), dtype=np.float32))
        assert store.count("doc-1") == 0

    def test_scopes_see_only_their_own(self, store: VectorStore) -> None:
        scopes = [Scope(tenant, kb) for tenant in ("t1", "t2") for kb in ("k1", "k2")]
        for scope in scopes:
            put_each(store, [f"{scope.tenant_id}{scope.kb_id}"], scope=scope)
        for scope in scopes:
            assert found(store, unit(1), scope) == [f"{scope.tenant_id}{scope.kb_id}"]

    def test_the_filter_works_before_the_limit(self, store: VectorStore) -> None:
        put_each(store, [f"other-{number}" for number in range(50)], scope=Scope("tenant-a", "kb-b"))
        store.put([chunk("mine")], rows(unit(0, 1)))
        assert found(store, unit(1), limit=1) == ["mine"]

    def test_equal_scores_are_ordered_by_chunk_id_at_every_limit(self, store: VectorStore) -> None:
        ids = [f"c{number:02}" for number in range(30)]
        put_each(store, ids[::-1])
        assert found(store, unit(1), limit=5) == ids[:5]
        assert found(store, unit(1), limit=100) == ids

    def test_a_limit_of_zero_finds_nothing(self, store: VectorStore) -> None:
        put_each(store, ["c1"])
        assert found(store, unit(1), limit=0) == []

    def test_a_search_is_exact(self, store: VectorStore) -> None:
        vectors = np.random.default_rng(7).normal(size=(500, DIMENSION)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        store.put([chunk(f"c{number}") for number in range(500)], vectors)
        nearest = np.argsort(-(vectors @ vectors[42]))[:20]
        assert found(store, vectors[42], limit=20) == [f"c{number}" for number in nearest]

    @pytest.mark.parametrize(
        "bad",
        [np.zeros((1, DIMENSION + 1)), np.zeros((2, DIMENSION)), np.full((1, DIMENSION), np.nan), np.zeros(DIMENSION)],
    )
    def test_vectors_that_do_not_fit_are_refused(self, store: VectorStore, bad: Vectors) -> None:
        with pytest.raises(InvalidInputError):
            store.put([chunk("c1")], bad.astype(np.float32))
        assert store.count("doc-1") == 0

    def test_a_query_vector_that_does_not_fit_is_refused(self, store: VectorStore) -> None:
        with pytest.raises(InvalidInputError):
            store.search(np.zeros(DIMENSION - 1, dtype=np.float32), SCOPE, 10)

    def test_deletes_one_revision_or_all_of_a_document(self, store: VectorStore) -> None:
        for doc in "ab":
            for revision in (1, 2):
                put_each(store, [f"{doc}-{revision}"], document_id=doc, revision=revision)
        store.delete_document("a", 1)
        assert (store.count("a"), store.count("a", 1), store.count("a", 2), store.count("b")) == (1, 0, 1, 2)
        assert found(store, unit(1)) == ["a-2", "b-1", "b-2"]
        store.delete_document("b")
        assert found(store, unit(1)) == ["a-2"]
        store.delete_document("never-there")

    def test_threads_put_and_search_at_once(self, store: VectorStore) -> None:
        def work(worker: int) -> None:
            for number in range(20):
                own = Scope("tenant-a", f"kb-{worker}")
                put_each(store, [f"w{worker}-{number:02}"], document_id=f"doc-{worker}", scope=own)
                assert len(found(store, unit(1), own, limit=100)) == number + 1

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        assert [store.count(f"doc-{worker}") for worker in range(6)] == [20] * 6

    def test_what_was_put_is_there_after_a_restart(self, store: VectorStore, reopen: Callable[[], VectorStore]) -> None:
        put_each(store, ["c1"])
        store.close()
        reopened = reopen()
        put_each(reopened, ["c2"])
        assert found(reopened, unit(1)) == ["c1", "c2"]
        reopened.close()
