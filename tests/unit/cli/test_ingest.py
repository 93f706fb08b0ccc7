"""Sending and waiting against a scripted server."""

import httpx
import pytest

from api_gateway.cli import upload as module
from api_gateway.cli import wait as waiting
from api_gateway.cli.api import Api
from api_gateway.cli.ingest import Ingested, knowledge_base, reason
from api_gateway.cli.upload import BATCH_BYTES, send_files
from api_gateway.cli.wait import rates, wait_until_final
from api_gateway.cli.walk import FoundFile
from pipeline.errors import NotFoundError


def accepted(key):
    return {"key": key, "outcome": "accepted", "document_id": f"id-{key}", "revision": 1, "error": None}


class Server:
    """Accepts uploads and remembers their keys; `refuse` holds answers that come first."""

    def __init__(self, *refuse):
        self.refuse = list(refuse)
        self.keys = []

    def __call__(self, request):
        if self.refuse:
            return self.refuse.pop(0)
        body = request.read().decode("latin-1")
        keys = [part.split("\r\n\r\n", 1)[1].split("\r\n")[0] for part in body.split("--") if 'name="keys"' in part]
        self.keys.append(keys)
        return httpx.Response(202, json={"results": [accepted(key) for key in keys]})


def send(server, files):
    counts = []
    with Api("http://server", "k", transport=httpx.MockTransport(server)) as api:
        sent = send_files(api, "kb", files, counts.append)
    return sent, counts


def made(folder, name, size_bytes=3):
    path = folder / name
    with path.open("wb") as stream:
        stream.truncate(size_bytes)
    return FoundFile(path, name, size_bytes)


def test_every_file_is_sent_and_counted(tmp_path):
    server = Server()
    sent, counts = send(server, [made(tmp_path, f"f{n}") for n in range(70)])
    assert [len(keys) for keys in server.keys] == counts == [32, 32, 6]
    assert len(sent.accepted) == 70


def test_a_file_that_vanished_is_named_and_its_neighbours_are_sent(tmp_path):
    files = [made(tmp_path, name) for name in ("a", "b", "c")]
    files[1].path.unlink()
    sent, _ = send(server := Server(), files)
    assert server.keys == [["a", "c"]]
    assert [each.code for each in sent.skipped] == ["missing_file"]
    assert sent.failures[0][0] == str(files[1].path)


def test_a_large_file_that_is_refused_stops_nothing(tmp_path):
    answer = httpx.Response(413, json={"code": "too_large", "detail": "Over the limit."})
    files = [made(tmp_path, "large", BATCH_BYTES + 1), made(tmp_path, "small")]
    sent, _ = send(Server(answer), files)
    assert [each.code for each in sent.skipped] == ["too_large"]
    assert sent.accepted == ["id-small"]


def test_an_overloaded_server_is_asked_again_after_the_time_it_names(tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(module.time, "sleep", slept.append)
    answer = httpx.Response(429, json={"code": "overloaded", "detail": "Later."}, headers={"retry-after": "30"})
    sent, _ = send(Server(answer), [made(tmp_path, "a")])
    assert slept == [30.0]
    assert sent.accepted == ["id-a"]


def document(document_id, state, **more):
    times = {name: f"2026-01-01T00:00:{second:02d}Z" for name, second in more.pop("times", {}).items()}
    empty = {"page_count": None, "chunk_count": None, "error": None, "error_code": None, "missing_pages": {}}
    return {"id": document_id, "key": document_id, "state": state, "times": times, **empty, **more}


class Library:
    """Documents that go on by one state with each look at the list of queued ones."""

    def __init__(self, **paths):
        self.paths = paths
        self.looks = 0

    def state(self, document_id):
        path = self.paths[document_id]
        return path[min(self.looks, len(path) - 1)]

    def __call__(self, request):
        name = request.url.path.rsplit("/", 1)[1]
        if name == "documents":
            self.looks += request.url.params["state"] == "queued"
            wanted = request.url.params["state"]
            items = [document(each, wanted) for each in self.paths if self.state(each) == wanted]
            return httpx.Response(200, json={"items": items, "next": None})
        if self.state(name) == "gone":
            return httpx.Response(404, json={"code": "unknown_document", "detail": "No."})
        return httpx.Response(200, json=document(name, self.state(name)))


def test_waiting_ends_when_every_document_is_final(monkeypatch):
    monkeypatch.setattr(waiting, "POLL_S", 0.001)
    paths = {
        "a": ["queued", "extracting", "searchable", "ready"],
        "b": ["queued", "failed"],
        "c": ["queued", "queued", "gone"],
        "stranger": ["queued"],
    }
    seen = []
    with Api("http://server", "k", transport=httpx.MockTransport(Library(**paths))) as api:
        found = wait_until_final(api, "kb", ["a", "b", "c"], lambda done, states: seen.append((done, dict(states))))
    assert [(each["id"], each["state"]) for each in found] == [("a", "ready"), ("b", "failed")]
    assert seen[-1] == (2, {})
    assert all(sum(states.values()) <= 3 for _, states in seen)


def test_rates_go_from_the_first_queued_to_the_last_searchable_and_ready():
    done = [
        document("a", "ready", page_count=10, chunk_count=40, times={"queued": 0, "searchable": 2, "ready": 5}),
        document("b", "ready", page_count=30, chunk_count=60, times={"queued": 1, "searchable": 4, "ready": 10}),
        document("c", "failed", times={"queued": 0, "failed": 50}),
    ]
    found = rates(done)
    assert (found.documents, found.pages, found.chunks) == (2, 40, 100)
    assert (found.pages_per_s, found.chunks_per_s) == (10.0, 10.0)


def test_without_a_ready_document_there_are_no_rates():
    assert rates([document("a", "failed")]).pages_per_s is None


def test_failed_documents_count_as_failures_with_their_reason():
    broken = document("a", "failed", error="The PDF is broken.", error_code="broken_pdf")
    result = Ingested("kb", module.Sent(), [broken, document("b", "empty"), document("c", "ready")])
    assert result.failures == [("a", "The PDF is broken. (broken_pdf)")]
    assert reason(document("c", "ready", missing_pages={"7": "crashed"})) == "1 pages could not be read: 7"


def nothing_there(request):
    if request.method == "GET":
        return httpx.Response(404, json={"code": "unknown_knowledge_base", "detail": "No knowledge base."})
    return httpx.Response(201, json={"id": "1", "name": "default"})


def test_the_default_knowledge_base_is_made_but_one_that_was_named_must_be_there():
    with Api("http://server", "k", transport=httpx.MockTransport(nothing_there)) as api:
        assert knowledge_base(api, None)["name"] == "default"
        with pytest.raises(NotFoundError, match="kb create handbook"):
            knowledge_base(api, "handbook")
