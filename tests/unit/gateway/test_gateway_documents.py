"""Documents over HTTP, on the real catalog and blob store."""

from __future__ import annotations

import pytest

from pipeline.models import RevisionState
from pipeline.stores.schema import documents, revisions, steps


@pytest.fixture(autouse=True)
def _kb(api):
    api.http.post("/v1/knowledge-bases", json={"name": "handbook"}, headers=api.acme)


def upload(api, *files, kb="handbook", headers=None, **fields):
    parts = [("files", (name, content)) for name, content in files]
    return api.http.post(f"/v1/knowledge-bases/{kb}/documents", files=parts, data=fields, headers=headers or api.acme)


def set_state(api, document_id, **values):
    with api.client.resources.database.write() as connection:
        connection.execute(revisions.update().where(revisions.c.document_id == document_id).values(**values))


def blobs_in_store(settings):
    return [path for path in (settings.data_dir / "blobs").rglob("*") if path.is_file()]


def test_an_upload_is_durable_and_queued_when_it_is_answered(api, settings):
    answer = upload(api, ("a.txt", b"one"), ("b.txt", b"two"))
    assert answer.status_code == 202
    body = answer.json()
    assert (body["accepted"], body["unchanged"], body["failed"]) == (2, 0, 0)
    for result, content in zip(body["results"], (b"one", b"two"), strict=True):
        document = api.http.get(f"/v1/documents/{result['document_id']}", headers=api.acme).json()
        assert (document["state"], document["size_bytes"], document["key"]) == ("queued", 3, result["key"])
        assert document["waiting"]["cause"] == "no_consumer"
        original = api.http.get(f"/v1/documents/{result['document_id']}/original", headers=api.acme)
        assert original.content == content
    assert len(blobs_in_store(settings)) == 2


def test_each_file_has_its_own_result(api, settings):
    answer = upload(api, ("a.txt", b"one"), ("big.txt", b"x" * 1001), ("empty.txt", b""), keys=["k1", "k2", "k3"])
    assert answer.status_code == 202
    first, big, empty = answer.json()["results"]
    assert (first["outcome"], first["key"]) == ("accepted", "k1")
    assert (big["outcome"], big["error"]["code"]) == ("error", "too_large")
    assert "SOURCEMILL_MAX_FILE_BYTES" in big["error"]["detail"]
    assert empty["error"]["code"] == "empty_file"
    assert len(blobs_in_store(settings)) == 1
    assert list((settings.data_dir / "uploads").iterdir()) == []


def test_the_same_bytes_again_are_unchanged_and_kept_once(api, settings):
    first = upload(api, ("a.txt", b"one")).json()["results"][0]
    again = upload(api, ("a.txt", b"one")).json()["results"][0]
    assert (again["outcome"], again["document_id"]) == ("unchanged", first["document_id"])
    assert len(blobs_in_store(settings)) == 1


def test_other_bytes_are_the_next_revision(api):
    first = upload(api, ("a.txt", b"one")).json()["results"][0]
    second = upload(api, ("a.txt", b"two")).json()["results"][0]
    assert (second["document_id"], second["revision"]) == (first["document_id"], 2)


def test_bytes_that_were_refused_for_overload_are_not_kept(api, settings):
    small = settings.model_copy(update={"max_queued_steps": 1})
    api.client.resources.settings = small
    assert upload(api, ("a.txt", b"one")).status_code == 202
    refused = upload(api, ("b.txt", b"two"))
    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert int(refused.headers["retry-after"]) > 0
    assert len(blobs_in_store(settings)) == 1


def test_an_upload_into_an_unknown_knowledge_base_is_not_found(api):
    answer = upload(api, ("a.txt", b"one"), kb="nowhere")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_knowledge_base")


def test_an_upload_over_the_limit_of_a_request_keeps_nothing(api, settings):
    answer = upload(api, *((f"{n}.txt", b"x" * 900) for n in range(12)))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert "10000 bytes" in answer.json()["detail"]
    assert blobs_in_store(settings) == []


def test_an_upload_without_a_declared_length_is_bounded_too(api, settings):
    def pieces():
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
        for _ in range(30):
            yield b"x" * 500

    headers = {**api.acme, "Content-Type": "multipart/form-data; boundary=b"}
    answer = api.http.post("/v1/knowledge-bases/handbook/documents", content=pieces(), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert list((settings.data_dir / "uploads").iterdir()) == []


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data", None])
def test_an_upload_of_another_content_type_is_refused(api, kind):
    headers = api.acme | ({"Content-Type": kind} if kind else {})
    answer = api.http.post("/v1/knowledge-bases/handbook/documents", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_documents_are_listed_by_state(api):
    results = upload(api, ("a.txt", b"1"), ("b.txt", b"2"), ("c.txt", b"3")).json()["results"]
    set_state(api, results[1]["document_id"], state=RevisionState.FAILED, error_code="broken_pdf", error="No.")
    listed = api.http.get("/v1/knowledge-bases/handbook/documents?state=failed", headers=api.acme).json()["items"]
    assert [(item["key"], item["error_code"]) for item in listed] == [("b.txt", "broken_pdf")]
    assert len(api.http.get("/v1/knowledge-bases/handbook/documents", headers=api.acme).json()["items"]) == 3
    assert api.http.get("/v1/knowledge-bases/handbook", headers=api.acme).json()["documents"] == {
        "failed": 1,
        "queued": 2,
    }
    bad = api.http.get("/v1/knowledge-bases/handbook/documents?state=lost", headers=api.acme)
    assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "query.state")


def test_a_deleted_document_is_gone_at_once(api):
    document_id = upload(api, ("a.txt", b"one")).json()["results"][0]["document_id"]
    assert api.http.delete(f"/v1/documents/{document_id}", headers=api.acme).status_code == 204
    for path in ("", "/original"):
        assert api.http.get(f"/v1/documents/{document_id}{path}", headers=api.acme).status_code == 404
    assert api.http.delete(f"/v1/documents/{document_id}", headers=api.acme).status_code == 404
    assert api.http.get("/v1/knowledge-bases/handbook/documents", headers=api.acme).json()["items"] == []


def test_only_a_failed_document_is_tried_again(api):
    document_id = upload(api, ("a.txt", b"one")).json()["results"][0]["document_id"]
    refused = api.http.post(f"/v1/documents/{document_id}/retry", headers=api.acme)
    assert (refused.status_code, refused.json()["code"]) == (409, "not_failed")
    set_state(api, document_id, state=RevisionState.FAILED)
    with api.client.resources.database.write() as connection:
        connection.execute(steps.update().values(state="failed"))
    again = api.http.post(f"/v1/documents/{document_id}/retry", headers=api.acme)
    assert (again.status_code, again.json()["state"]) == (202, "queued")


def test_an_original_is_an_attachment_that_no_browser_runs(api):
    key = "x/\"evil\\<script>'.html"
    answer = upload(api, ("a.html", b"<script>alert(1)</script>"), keys=[key])
    document_id = answer.json()["results"][0]["document_id"]
    original = api.http.get(f"/v1/documents/{document_id}/original", headers=api.acme)
    disposition = original.headers["content-disposition"]
    assert disposition == "attachment; filename*=utf-8''%3Cscript%3E%27.html"
    assert original.headers["x-content-type-options"] == "nosniff"
    assert original.headers["content-security-policy"] == "sandbox; default-src 'none'"
    part = api.http.get(f"/v1/documents/{document_id}/original", headers={**api.acme, "Range": "bytes=1-6"})
    assert (part.status_code, part.content) == (206, b"script")


def test_the_original_is_that_of_the_revision_that_answers(api):
    document_id = upload(api, ("a.txt", b"one")).json()["results"][0]["document_id"]
    with api.client.resources.database.write() as connection:
        connection.execute(documents.update().where(documents.c.id == document_id).values(live_revision=1))
    upload(api, ("a.txt", b"two"))
    assert api.http.get(f"/v1/documents/{document_id}/original", headers=api.acme).content == b"one"
