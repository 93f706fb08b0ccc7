"""What every StreamStore must do. An implementation's test class gives the fixtures `store` and `lose`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.errors import InvalidInputError, PermanentError, StaleEpochError
from pipeline.models import Event, Snapshot
from pipeline.stores.ports import StreamStore

Lose = Callable[[], None]


def event(seq: int, epoch: int = 1, kind: str = "delta", data: Mapping[str, Any] | None = None) -> Event:
    return Event(seq, epoch, kind, {"text": f"part {seq}"} if data is None else data)


def seqs(store: StreamStore, after: int = -1, message_id: str = "m1") -> list[int]:
    return [read.seq for read in store.read(message_id, after)]


class StreamStoreContract:
    def test_events_come_back_as_they_were_appended(self, store: StreamStore) -> None:
        assert store.begin("m1", 1, {}) == 0
        events = [event(0, kind="status", data={"status": "streaming"}), event(1, data={"text": "é\x00中"}), event(2)]
        for appended in events:
            store.append("m1", appended)
        assert store.read("m1", -1) == events
        assert store.read("m1", 1) == events[2:]
        assert store.read("m1", 2) == []

    def test_read_takes_the_first_ones_up_to_the_limit(self, store: StreamStore) -> None:
        for seq in range(10):
            store.append("m1", event(seq))
        assert [read.seq for read in store.read("m1", 3, limit=2)] == [4, 5]
        assert store.read("m1", 3, limit=0) == []

    def test_a_snapshot_is_the_state_at_its_seq(self, store: StreamStore) -> None:
        assert store.snapshot("m1") is None
        store.begin("m1", 1, {"text": ""})
        assert store.snapshot("m1") == Snapshot("m1", 1, -1, {"text": ""})
        store.append("m1", event(0), {"text": "a", "nested": {"list": [1, None, 2.5]}})
        store.append("m1", event(1))
        assert store.snapshot("m1") == Snapshot("m1", 1, 0, {"text": "a", "nested": {"list": [1, None, 2.5]}})

    def test_a_retried_append_changes_nothing(self, store: StreamStore) -> None:
        store.append("m1", event(0), {"text": "a"})
        store.append("m1", event(1), {"text": "ab"})
        store.append("m1", event(0, data={"text": "other"}), {"text": "other"})
        store.append("m1", event(1), {"text": "other"})
        assert [read.data for read in store.read("m1", -1)] == [event(0).data, event(1).data]
        assert store.snapshot("m1") == Snapshot("m1", 1, 1, {"text": "ab"})

    def test_a_gap_is_refused(self, store: StreamStore) -> None:
        store.append("m1", event(0))
        with pytest.raises(PermanentError, match="gap") as refused:
            store.append("m1", event(2))
        assert not isinstance(refused.value, StaleEpochError)
        assert seqs(store) == [0]

    def test_a_later_epoch_goes_on_and_fences_the_earlier_one(self, store: StreamStore) -> None:
        store.begin("m1", 1, {"by": 1})
        store.append("m1", event(0))
        assert store.begin("m1", 2, {"by": 2}) == 1
        with pytest.raises(StaleEpochError):
            store.append("m1", event(1, epoch=1))
        with pytest.raises(StaleEpochError):
            store.begin("m1", 1, {})
        store.append("m1", event(1, epoch=2, kind="reset"))
        assert [(read.seq, read.epoch) for read in store.read("m1", -1)] == [(0, 1), (1, 2)]
        assert store.snapshot("m1") == Snapshot("m1", 2, 0, {"by": 2})

    def test_a_stale_writer_may_not_even_repeat_itself(self, store: StreamStore) -> None:
        store.append("m1", event(0))
        store.begin("m1", 2, {})
        with pytest.raises(StaleEpochError):
            store.append("m1", event(0, epoch=1))

    def test_the_same_epoch_may_begin_again(self, store: StreamStore) -> None:
        store.begin("m1", 1, {})
        store.append("m1", event(0))
        assert store.begin("m1", 1, {}) == 1

    @pytest.mark.parametrize("terminal", ["finished", "failed", "cancelled"])
    def test_nothing_follows_a_terminal_event(self, store: StreamStore, terminal: str) -> None:
        store.append("m1", event(0))
        store.append("m1", event(1, kind=terminal), {"status": terminal})
        store.append("m1", event(2), {"status": "late"})
        store.append("m1", event(2, kind="failed"), {"status": "late"})
        assert store.begin("m1", 2, {"status": "again"}) == 2
        store.append("m1", event(2, epoch=2, kind="finished"), {"status": "again"})
        assert [read.type for read in store.read("m1", -1)] == ["delta", terminal]
        snapshot = store.snapshot("m1")
        assert snapshot is not None
        assert (snapshot.seq, snapshot.state) == (1, {"status": terminal})

    def test_a_lost_stream_goes_on_where_its_writer_is(self, store: StreamStore, lose: Lose) -> None:
        for seq in range(5):
            store.append("m1", event(seq), {"seq": seq})
        lose()
        assert store.snapshot("m1") is None
        assert seqs(store) == []
        store.append("m1", event(5))
        assert store.snapshot("m1") is None
        store.append("m1", event(6), {"seq": 6})
        assert seqs(store) == [5, 6]
        assert seqs(store, after=3) == [5, 6]
        assert store.snapshot("m1") == Snapshot("m1", 1, 6, {"seq": 6})

    def test_after_a_loss_a_stale_writer_does_not_stop_the_true_one(self, store: StreamStore, lose: Lose) -> None:
        store.begin("m1", 2, {})
        store.append("m1", event(0, epoch=2))
        lose()
        for seq in (5, 6, 7):
            store.append("m1", event(seq, epoch=1), {"by": "stale"})
        store.append("m1", event(1, epoch=2), {"by": "true"})
        store.append("m1", event(2, epoch=2, kind="finished"), {"by": "true", "done": True})
        with pytest.raises(StaleEpochError):
            store.append("m1", event(8, epoch=1))
        assert seqs(store) == [1, 2]
        assert store.snapshot("m1") == Snapshot("m1", 2, 2, {"by": "true", "done": True})

    def test_a_lost_stream_may_begin_again(self, store: StreamStore, lose: Lose) -> None:
        store.append("m1", event(0))
        lose()
        assert store.begin("m1", 2, {}) == 0

    def test_messages_are_apart(self, store: StreamStore) -> None:
        store.append("m1", event(0))
        store.append("m2", event(0))
        store.append("m2", event(1))
        store.delete("m1")
        store.delete("never-there")
        assert (seqs(store), seqs(store, message_id="m2")) == ([], [0, 1])
        assert store.snapshot("m1") is None

    def test_what_is_no_json_is_refused(self, store: StreamStore) -> None:
        with pytest.raises(InvalidInputError):
            store.append("m1", event(0, data={"text": "\ud800"}))
        assert seqs(store) == []

    def test_follow_gives_what_is_behind_each_position(self, store: StreamStore) -> None:
        for seq in range(3):
            store.append("m1", event(seq))
        store.append("m2", event(0, data={"text": "two"}))
        positions = {"m1": "0", "m2": "0", "m3": "0"}
        seen = []
        for message_id, position, followed in store.follow(positions, block_ms=0):
            positions[message_id] = position
            seen.append((message_id, followed.seq, followed.data["text"]))
        assert sorted(seen) == [("m1", 0, "part 0"), ("m1", 1, "part 1"), ("m1", 2, "part 2"), ("m2", 0, "two")]
        assert list(store.follow(positions, block_ms=0)) == []
        store.append("m1", event(3))
        assert [followed.seq for _, _, followed in store.follow(positions, block_ms=0)] == [3]

    def test_follow_waits_for_the_first_event_and_no_longer(self, store: StreamStore) -> None:
        def append_later() -> None:
            time.sleep(0.2)
            store.append("m2", event(0))

        with ThreadPoolExecutor(1) as pool:
            started = time.monotonic()
            pool.submit(append_later)
            assert [found[0] for found in store.follow({"m1": "0", "m2": "0"}, block_ms=5_000)] == ["m2"]
        assert 0.1 < time.monotonic() - started < 3

    @pytest.mark.parametrize("positions", [{}, {"m1": "0"}])
    def test_follow_gives_up_when_nothing_comes(self, store: StreamStore, positions: dict[str, str]) -> None:
        started = time.monotonic()
        assert list(store.follow(positions, block_ms=150)) == []
        assert 0.1 < time.monotonic() - started < 2

    def test_writers_who_race_leave_each_seq_once(self, store: StreamStore) -> None:
        def write(_: int) -> None:
            for seq in range(50):
                try:
                    store.append("m1", event(seq))
                except PermanentError:  # the others are behind this seq
                    return

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert seqs(store) == list(range(50))

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        steps=st.lists(
            st.tuples(st.sampled_from(["append", "begin", "lose"]), st.integers(0, 6), st.integers(1, 3)), max_size=25
        )
    )
    def test_whatever_writers_do_a_reader_sees_contiguous_seqs_and_rising_epochs(
        self, store: StreamStore, lose: Lose, steps: list[tuple[str, int, int]]
    ) -> None:
        lose()
        for action, seq, epoch in steps:
            try:
                if action == "append":
                    store.append("m1", event(seq, epoch=epoch, kind="finished" if seq == 6 else "delta"), {"seq": seq})
                elif action == "begin":
                    store.begin("m1", epoch, {})
                else:
                    lose()
            except PermanentError:
                continue
        events = store.read("m1", -1)
        assert (
            [read.seq for read in events] == list(range(events[0].seq, events[0].seq + len(events))) if events else True
        )
        assert [read.epoch for read in events] == sorted(read.epoch for read in events)
        assert sum(read.type == "finished" for read in events[:-1]) == 0
        snapshot = store.snapshot("m1")
        assert snapshot is None or not events or snapshot.seq <= events[-1].seq
