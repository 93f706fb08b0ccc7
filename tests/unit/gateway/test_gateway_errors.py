"""What a caller gets when he may not, when he is wrong and when we are."""

from __future__ import annotations

import json
from urllib.parse import unquote

import pytest
from structlog.testing import capture_logs

from pipeline import errors
from pipeline.stores.stream_redis import RedisStreamStore

JSON_ROUTES = ["/v1/knowledge-bases", "/v1/threads"]


@pytest.fixture
def own(api):
    """Ids of one of each thing of acme."""
    kb = api.http.post("/v1/knowledge-bases", json={"name": "secret"}, headers=api.acme).json()["id"]
    files = {"files": ("a.txt", b"text")}
    results = api.http.post(f"/v1/knowledge-bases/{kb}/documents", files=files, headers=api.acme).json()["results"]
    thread = api.http.post("/v1/threads", json={"kb_ids": [kb]}, headers=api.acme).json()["id"]
    asked = api.http.post(f"/v1/threads/{thread}/messages", json={"content": "?!"}, headers=api.acme).json()
    return {
        "kb": kb,
        "document_id": results[0]["document_id"],
        "thread_id": thread,
        "message_id": asked["message_id"],
    }


def operations(app):
    """(method, path template) of all that is under /v1."""
    for path, methods in app.openapi()["paths"].items():
        if path.startswith("/v1"):
            for method in methods:
                yield method.upper(), path


def send(api, method, path, headers):
    if method == "POST" and path.endswith("/documents"):
        return api.http.post(path, files={"files": ("a.txt", b"text")}, headers=headers)
    body = {"content": "?"} if path.endswith("/messages") else {"name": "n"} if path.endswith("bases") else {}
    return api.http.request(method, path, json=body if method == "POST" else None, headers=headers)


def assert_is_problem(response, status, code):
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert problem["title"]
    assert problem["detail"]
    assert unquote(problem["instance"]) == response.request.url.path


def test_every_route_is_closed_without_a_valid_key(api, own):
    found = list(operations(api.app))
    assert len(found) >= 17
    for method, path in found:
        place = path.format(**own)
        for headers, code in (
            ({}, "unauthorized"),
            ({"Authorization": "Bearer "}, "unauthorized"),
            ({"Authorization": "Basic eDp5"}, "unauthorized"),
            ({"Authorization": "Bearer sm_wrong"}, "invalid_api_key"),
            ({"Authorization": api.acme["Authorization"] + "x"}, "invalid_api_key"),
        ):
            refused = send(api, method, place, headers)
            assert_is_problem(refused, 401, code)
            assert refused.headers["www-authenticate"] == "Bearer"


def test_what_belongs_to_another_tenant_is_not_found_on_any_route(api, own):
    closed = [(method, path) for method, path in operations(api.app) if "{" in path]
    assert len(closed) >= 13
    for method, path in closed:
        refused = send(api, method, path.format(**own), api.umbrella)
        assert refused.status_code == 404, (method, path, refused.text)
        assert refused.headers["content-type"] == "application/problem+json"


def test_another_tenants_knowledge_base_can_not_be_asked(api, own):
    assert api.http.post("/v1/threads", json={"kb_ids": [own["kb"]]}, headers=api.umbrella).status_code == 404
    thread = api.http.post("/v1/threads", json={}, headers=api.umbrella).json()["id"]
    body = {"content": "What?", "kb_ids": [own["kb"]]}
    assert api.http.post(f"/v1/threads/{thread}/messages", json=body, headers=api.umbrella).status_code == 404


@pytest.mark.usefixtures("own")
def test_lists_and_counts_show_only_the_callers_own(api):
    for path in ("knowledge-bases", "threads"):
        assert api.http.get(f"/v1/{path}", headers=api.umbrella).json()["items"] == []
    status = api.http.get("/v1/status", headers=api.umbrella).json()
    assert status["documents"] == {}
    assert all(queue["ready"] == queue["running"] == 0 for queue in status["queues"])
    assert api.http.get("/v1/status", headers=api.acme).json()["documents"] == {"queued": 1}


@pytest.mark.parametrize("name", ["a%00b", "a%0ab", "x" * 257, "%7f"])
def test_an_id_that_can_be_none_is_refused(api, name):
    for path in ("knowledge-bases", "documents", "threads", "messages"):
        refused = api.http.get(f"/v1/{path}/{name}", headers=api.acme)
        assert_is_problem(refused, 422, "invalid_request")


@pytest.mark.parametrize("name", ["..", "%2e%2e%2fetc", "' OR 1=1 --", "%ff%fe", "0", "*", "{id}", "%F0%9F%92%A9"])
def test_a_strange_id_is_just_not_found(api, name):
    for path in ("knowledge-bases", "documents", "threads", "messages"):
        assert api.http.get(f"/v1/{path}/{name}", headers=api.acme).status_code == 404


@pytest.mark.parametrize("path", JSON_ROUTES)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b'"text"', b"[1]", b"\xff\xfe", b'{"name": "\\ud800"}', b"[" * 5000, b'{"name": NaN}'],
)
def test_a_body_that_is_no_object_is_a_problem_and_no_crash(api, path, content):
    headers = {**api.acme, "Content-Type": "application/json"}
    refused = api.http.post(path, content=content, headers=headers)
    assert refused.status_code in (400, 422)
    assert refused.json()["code"] == "invalid_request"
    assert refused.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data; boundary=x"])
def test_a_body_of_another_content_type_is_refused(api, kind):
    refused = api.http.post("/v1/threads", content=b"{}", headers={**api.acme, "Content-Type": kind})
    assert_is_problem(refused, 415, "unsupported_media_type")


@pytest.mark.parametrize("path", JSON_ROUTES)
def test_a_huge_body_is_refused_whether_or_not_it_says_its_length(api, path):
    huge = json.dumps({"name": "x" * 1100 * 1024}).encode()
    headers = {**api.acme, "Content-Type": "application/json"}
    assert_is_problem(api.http.post(path, content=huge, headers=headers), 413, "too_large")
    pieces = (huge[at : at + 65536] for at in range(0, len(huge), 65536))
    assert_is_problem(api.http.post(path, content=pieces, headers=headers), 413, "too_large")


def test_an_error_does_not_repeat_what_the_caller_sent(api):
    body = {"name": "n", "password": "hunter2"}
    refused = api.http.post("/v1/knowledge-bases", json=body, headers=api.acme)
    assert refused.json()["errors"] == [{"field": "body.password", "message": "Extra inputs are not permitted"}]
    assert "hunter2" not in refused.text


def test_unknown_paths_and_methods_are_problems_too(api):
    assert_is_problem(api.http.get("/v2/nothing"), 404, "not_found")
    refused = api.http.put("/v1/threads", headers=api.acme)
    assert_is_problem(refused, 405, "method_not_allowed")
    assert "GET" in refused.headers["allow"] or "POST" in refused.headers["allow"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidInputError("m"), 422, "invalid_request"),
        (errors.NotFoundError("m"), 404, "not_found"),
        (errors.ConflictError("m"), 409, "conflict"),
        (errors.TooLargeError("m"), 413, "too_large"),
        (errors.StoreUnavailableError("m"), 503, "store_unavailable"),
        (errors.TransientError("m", code="overloaded", retry_after_s=2.5), 429, "overloaded"),
        (errors.DocumentError("m", code="broken_pdf"), 422, "broken_pdf"),
        (errors.ConfigurationError("password=hunter2"), 500, "internal_error"),
        (errors.PermanentError("password=hunter2"), 500, "internal_error"),
        (ZeroDivisionError("password=hunter2"), 500, "internal_error"),
    ],
)
def test_each_error_has_its_status(api, error, status, code):
    def fail() -> None:
        raise error

    api.app.get("/fail")(fail)
    response = api.http.get("/fail")
    assert_is_problem(response, status, code)
    assert "hunter2" not in response.text
    assert ("retry-after" in response.headers) == isinstance(error, errors.TransientError)
    assert len(response.headers["x-request-id"]) == 32


def test_retry_after_is_whole_seconds_and_never_too_few(api):
    def fail() -> None:
        raise errors.TransientError("later", retry_after_s=2.1)

    api.app.get("/fail")(fail)
    assert api.http.get("/fail").headers["retry-after"] == "3"


def test_a_request_id_is_taken_over_unless_it_could_do_harm(api):
    assert api.http.get("/healthz", headers={"X-Request-ID": "abc-1"}).headers["x-request-id"] == "abc-1"
    assert len(api.http.get("/healthz", headers={"X-Request-ID": "a b\t" * 99}).headers["x-request-id"]) == 32


def test_each_request_is_one_log_line_with_tenant_and_route(api, own):
    with capture_logs() as lines:
        api.http.get(f"/v1/documents/{own['document_id']}", headers=api.acme)
    line = next(line for line in lines if line["event"] == "request")
    assert line["route"] == "/v1/documents/{document_id}"
    assert (line["tenant_id"], line["method"], line["status"]) == ("acme", "GET", 200)
    assert line["milliseconds"] >= 0


def test_health_needs_no_key(api):
    assert api.http.get("/healthz").json() == {"status": "ok"}
    assert api.http.get("/readyz").json() == {"status": "ok"}


def test_readiness_names_the_part_that_is_missing(api):
    away = RedisStreamStore("redis://127.0.0.1:1")
    api.client.resources._opened["streams"] = away
    refused = api.http.get("/readyz")
    assert_is_problem(refused, 503, "not_ready")
    assert "stream server" in refused.json()["detail"]
    assert api.http.get("/healthz").status_code == 200


def test_the_api_describes_every_route_and_its_errors(api):
    spec = api.http.get("/openapi.json").json()
    assert api.http.get("/docs").status_code == 200
    names = [operation["operationId"] for path in spec["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    for path, methods in spec["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert operation["tags"], path
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"], (path, status)
            if path.startswith("/v1"):
                assert operation["security"], path
                assert {"401", "503"} <= set(operation["responses"]), path


def test_answers_are_not_kept_by_caches_and_not_open_to_other_sites(api):
    response = api.http.get("/v1/threads", headers={**api.acme, "Origin": "https://elsewhere.example"})
    assert response.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in response.headers
