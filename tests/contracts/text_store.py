"""What every TextStore must do. An implementation's test class gives the fixtures `store` and `reopen`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from records import SCOPE, chunk

from pipeline.models import Scope, TextQuery
from pipeline.retrieval.query import parse
from pipeline.stores.ports import TextStore

HOSTILE = [
    "",
    " ",
    "\x00",
    "\ud800",
    '"',
    '"""',
    "+",
    "-",
    '+"',
    "AND OR NOT",
    "a:b^2~",
    "(((",
    "*",
    "/.*/",
    "😀",
    "\u202e",
]


def found(store: TextStore, question: str, scope: Scope = SCOPE, limit: int = 10) -> list[str]:
    return [hit.chunk_id for hit in store.search(parse(question), scope, limit)]


class TextStoreContract:
    def test_finds_a_chunk_right_after_put(self, store: TextStore) -> None:
        store.put([chunk("c1", "The revenue grew")])
        assert found(store, "revenues") == ["c1"]

    def test_a_hit_names_its_document_and_revision(self, store: TextStore) -> None:
        store.put([chunk("c1", "revenue", document_id="doc-7", revision=3)])
        (hit,) = store.search(parse("revenue"), SCOPE, 10)
        assert (hit.chunk_id, hit.document_id, hit.revision) == ("c1", "doc-7", 3)
        assert hit.score > 0

    def test_putting_twice_changes_nothing(self, store: TextStore) -> None:
        for _ in range(2):
            store.put([chunk("c1", "revenue"), chunk("c2", "revenue and loss")])
        assert sorted(found(store, "revenue")) == ["c1", "c2"]
        assert store.count("doc-1") == 2

    def test_the_same_id_twice_in_one_put_is_one_chunk(self, store: TextStore) -> None:
        store.put([chunk("c1", "first"), chunk("c1", "second")])
        assert (found(store, "first"), found(store, "second")) == ([], ["c1"])

    def test_a_put_replaces_the_chunk_of_that_id(self, store: TextStore) -> None:
        store.put([chunk("c1", "old words")])
        store.put([chunk("c1", "new terms")])
        assert (found(store, "old"), found(store, "new")) == ([], ["c1"])

    def test_putting_nothing_is_allowed(self, store: TextStore) -> None:
        store.put([])
        assert store.count("doc-1") == 0

    def test_scopes_see_only_their_own(self, store: TextStore) -> None:
        scopes = [Scope(tenant, kb) for tenant in ("t1", "t2") for kb in ("k1", "k2")]
        store.put([chunk(f"{s.tenant_id}{s.kb_id}", "identical text", scope=s) for s in scopes])
        for scope in scopes:
            own = f"{scope.tenant_id}{scope.kb_id}"
            assert found(store, "identical", scope) == [own]
            assert [hit.chunk_id for hit in store.get(["t1k1", "t1k2", "t2k1", "t2k2"], scope)] == [own]

    def test_better_matches_come_first(self, store: TextStore) -> None:
        store.put([chunk("one", "apple pear plum"), chunk("two", "apple apple pear"), chunk("none", "cherry")])
        assert found(store, "apple") == ["two", "one"]

    def test_equal_scores_are_ordered_by_chunk_id_at_every_limit(self, store: TextStore) -> None:
        ids = [f"c{number:02}" for number in range(30)]
        for chunk_id in reversed(ids):
            store.put([chunk(chunk_id, "same words here")])
        assert found(store, "words", limit=5) == ids[:5]
        assert found(store, "words", limit=100) == ids

    def test_phrases_are_adjacent_and_in_order(self, store: TextStore) -> None:
        store.put(
            [chunk("yes", "the net income fell"), chunk("no", "income, net of tax"), chunk("far", "net of income")]
        )
        assert found(store, '"net income"') == ["yes"]
        assert found(store, '+"net income" tax') == ["yes"]

    def test_required_and_excluded_words(self, store: TextStore) -> None:
        store.put([chunk("ab", "alpha beta"), chunk("a", "alpha gamma"), chunk("b", "beta gamma")])
        assert found(store, "+alpha beta") == ["ab", "a"]
        assert found(store, "alpha -beta") == ["a"]
        assert found(store, '+gamma -"beta gamma"') == ["a"]
        assert found(store, "-alpha") == []

    def test_an_empty_query_matches_nothing(self, store: TextStore) -> None:
        store.put([chunk("c1", "text")])
        assert store.search(TextQuery(), SCOPE, 10) == []

    def test_a_limit_of_zero_finds_nothing(self, store: TextStore) -> None:
        store.put([chunk("c1", "text")])
        assert found(store, "text", limit=0) == []

    @pytest.mark.parametrize("question", ["退款政策", "退款", "政策是什么", '"款政策"', "+退款 -发票"])
    def test_chinese_is_found(self, store: TextStore, question: str) -> None:
        store.put([chunk("zh", "我们的退款政策如下。"), chunk("other", "发票与税务")])
        assert found(store, question) == ["zh"]

    @pytest.mark.parametrize("question", HOSTILE)
    def test_hostile_queries_are_only_text(self, store: TextStore, question: str) -> None:
        store.put([chunk("c1", "innocent words")])
        assert found(store, question) == []

    def test_hostile_text_is_stored(self, store: TextStore) -> None:
        store.put([chunk("c1", "null \x00 surrogate \ud800 bidi \u202e " + "x" * 100_000)])
        (hit,) = store.get(["c1"], SCOPE)
        assert hit.text.startswith("null \x00 surrogate ")
        assert found(store, "surrogate") == ["c1"]

    def test_a_very_long_query_is_answered(self, store: TextStore) -> None:
        store.put([chunk("c1", "needle")])
        assert found(store, "needle " + " ".join(f"word{number}" for number in range(20_000))) == ["c1"]

    def test_get_keeps_the_order_and_leaves_out_unknown_ids(self, store: TextStore) -> None:
        store.put([chunk(f"c{number}", f"text {number}", ordinal=number) for number in range(5)])
        hits = store.get(["c3", "missing", "c0"], SCOPE)
        assert [hit.chunk_id for hit in hits] == ["c3", "c0"]
        assert hits[0].text == "text 3"
        assert (hits[0].ordinal, hits[0].start, hits[0].end) == (3, 3000, 3006)
        assert (hits[0].page_start, hits[0].page_end, hits[0].section_path) == (1, 2, ("Part", "Chapter"))
        assert (hits[0].kb_id, hits[0].revision, hits[0].score) == ("kb-a", 1, 0.0)
        assert store.get([], SCOPE) == []

    def test_deletes_one_revision_or_all_of_a_document(self, store: TextStore) -> None:
        store.put([chunk(f"{doc}-{rev}", "text", document_id=doc, revision=rev) for doc in "ab" for rev in (1, 2)])
        store.delete_document("a", 1)
        assert (store.count("a"), store.count("a", 1), store.count("a", 2), store.count("b")) == (1, 0, 1, 2)
        assert found(store, "text") == ["a-2", "b-1", "b-2"]
        store.delete_document("b")
        assert found(store, "text") == ["a-2"]
        store.delete_document("never-there")

    def test_a_deleted_chunk_can_be_put_again(self, store: TextStore) -> None:
        store.put([chunk("c1", "text")])
        store.delete_document("doc-1")
        store.put([chunk("c1", "text")])
        assert found(store, "text") == ["c1"]

    def test_threads_put_search_and_delete_at_once(self, store: TextStore) -> None:
        def work(worker: int) -> None:
            for number in range(10):
                chunk_id = f"w{worker}-{number}"
                store.put([chunk(chunk_id, f"common only{worker}x{number}", document_id=f"doc-{worker}")])
                assert found(store, f"only{worker}x{number}") == [chunk_id]
            if worker == 0:
                store.delete_document("doc-0")

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        assert [store.count(f"doc-{worker}") for worker in range(6)] == [0, 10, 10, 10, 10, 10]

    def test_what_was_put_is_there_after_a_restart(self, store: TextStore, reopen: Callable[[], TextStore]) -> None:
        store.put([chunk("c1", "durable words")])
        store.close()
        reopened = reopen()
        assert found(reopened, "durable") == ["c1"]
        reopened.put([chunk("c2", "more durable words")])
        assert sorted(found(reopened, "durable")) == ["c1", "c2"]
        reopened.close()
