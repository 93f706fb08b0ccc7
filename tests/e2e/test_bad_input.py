"""Whatever is wrong gets a clear reason, and everything else goes on."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pypdf
import pytest

from pipeline.settings import load_settings
from pipeline.wiring import open_resources
from tests.e2e.conftest import write_files
from tests.stack import REPOSITORY, SAMPLES, Api, Stack, running_stack
from workers.policies import POLICIES


def locked_pdf() -> bytes:
    writer = pypdf.PdfWriter(clone_from=SAMPLES / "leave-and-time-off.pdf")
    writer.encrypt("secret", algorithm="RC4-128")
    return _bytes_of(writer)


def pdf_without_pages() -> bytes:
    return _bytes_of(pypdf.PdfWriter())


def _bytes_of(writer: pypdf.PdfWriter) -> bytes:
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def zip_with(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def outcomes(api: Api) -> dict[str, dict]:
    """One upload of bad files and good ones; each document's end by key."""
    pdf = (SAMPLES / "leave-and-time-off.pdf").read_bytes()
    kb = api.create_kb("bad files")
    files = {
        "blank.txt": b" \n\t \n",
        "locked.pdf": locked_pdf(),
        "no-pages.pdf": pdf_without_pages(),
        "broken.pdf": pdf[: len(pdf) // 3],
        "noise.pdf": b"%PDF-1.7\n" + bytes(range(256)) * 40,
        "really-a-pdf.txt": pdf,
        "really-text.pdf": b"This text says that it is a PDF file.",
        "archive.zip": zip_with("a.txt"),
        "not-a-document.docx": zip_with("word/nothing.xml"),
        "binary.txt": bytes(range(256)) * 16,
        "good.txt": b"The good file is ready.",
    }
    results = api.upload(kb, {**files, "empty.txt": b""})
    refused = {result["key"]: result for result in results if result["outcome"] == "error"}
    return refused | {document["key"]: document for document in api.wait_documents(kb, 90)}


def test_the_good_files_are_ready(outcomes) -> None:
    for key in ("good.txt", "really-a-pdf.txt", "really-text.pdf"):
        assert outcomes[key]["state"] == "ready", key
    assert outcomes["really-a-pdf.txt"]["media_type"] == "application/pdf"
    assert outcomes["really-a-pdf.txt"]["page_count"] == 18


def test_an_empty_file_is_refused_at_the_door(outcomes) -> None:
    assert outcomes["empty.txt"]["error"]["code"] == "empty_file"


def test_a_text_of_blanks_is_empty(outcomes) -> None:
    assert outcomes["blank.txt"]["state"] == "empty"


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("locked.pdf", "password_protected"),
        ("no-pages.pdf", "zero_pages"),
        ("noise.pdf", "broken_pdf"),
        ("archive.zip", "unsupported_type"),
        ("not-a-document.docx", None),
        ("binary.txt", "unsupported_type"),
    ],
)
def test_a_bad_file_fails_with_its_reason(outcomes, key: str, code: str | None) -> None:
    document = outcomes[key]
    assert document["state"] == "failed"
    assert document["error"]
    assert code is None or document["error_code"] == code


def test_half_a_pdf_ends_with_a_reason(outcomes) -> None:
    assert outcomes["broken.pdf"]["state"] in {"failed", "ready"}
    assert outcomes["broken.pdf"]["state"] == "ready" or outcomes["broken.pdf"]["error"]


def problem(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("application/problem+json")
    assert response.json()["code"] == code
    assert response.json()["detail"]


def thread(api: Api, **params) -> str:
    return api.http.post("/v1/threads", json=params).json()["id"]


def test_questions_that_can_not_be_asked(api: Api, sample_kb: str) -> None:
    path = f"/v1/threads/{thread(api, kb_ids=[sample_kb])}/messages"
    problem(api.http.post(path, json={"content": "  "}), 422, "empty_question")
    problem(api.http.post(path, json={"content": "x" * 100_000}), 413, "question_too_long")
    problem(api.http.post(path, json={"content": "x", "model": "nobody/nothing"}), 422, "unknown_model")
    problem(api.http.post(path, json={"content": "x", "kb_ids": ["nowhere"]}), 404, "unknown_knowledge_base")
    problem(api.http.post("/v1/threads/unknown/messages", json={"content": "x"}), 404, "unknown_thread")


def test_a_question_without_knowledge_bases_is_abstained(api: Api) -> None:
    assert api.answer("Who is there?")["abstained"] is True


def test_names_and_keys_that_are_wrong(api: Api, stack: Stack) -> None:
    api.create_kb("taken")
    problem(api.http.post("/v1/knowledge-bases", json={"name": "taken"}), 409, "duplicate_name")
    problem(api.http.post("/v1/knowledge-bases", json={"name": " "}), 422, "bad_name")
    problem(api.http.get("/v1/knowledge-bases/nowhere"), 404, "unknown_knowledge_base")
    url = stack.record["url"]
    problem(httpx.get(f"{url}/v1/knowledge-bases"), 401, "unauthorized")
    wrong = {"Authorization": "Bearer sm_wrong"}
    problem(httpx.get(f"{url}/v1/knowledge-bases", headers=wrong), 401, "invalid_api_key")


def test_another_tenants_ids_are_not_there(api: Api, stack: Stack, sample_kb: str) -> None:
    document = api.documents(sample_kb)[0]["id"]
    message = api.ask("Who are you?", sample_kb)
    key = _key_of_another_tenant(stack)
    with httpx.Client(base_url=stack.record["url"], headers={"Authorization": f"Bearer {key}"}) as other:
        for path in (
            f"/v1/knowledge-bases/{sample_kb}",
            f"/v1/knowledge-bases/{sample_kb}/documents",
            f"/v1/documents/{document}",
            f"/v1/messages/{message}",
            f"/v1/messages/{message}/events",
        ):
            assert other.get(path).status_code == 404, path
        assert other.delete(f"/v1/documents/{document}").status_code == 404
        assert other.post(f"/v1/messages/{message}/cancel").status_code == 404
        asked = other.post("/v1/threads", json={"kb_ids": [sample_kb]})
        assert asked.status_code == 404


def _key_of_another_tenant(stack: Stack) -> str:
    with open_resources(load_settings({"SOURCEMILL_DATA_DIR": str(stack.data_dir)}), POLICIES) as resources:
        return resources.api_keys.create("other", "test")[1]


def test_the_command_line_names_each_bad_path_and_goes_on(stack: Stack, api: Api, tmp_path: Path) -> None:
    api.create_kb("paths")
    write_files(tmp_path / "in", {"good.txt": b"It is good.", "big.txt": b"x" * 1000})
    os.truncate(tmp_path / "in" / "big.txt", 200 * 1024 * 1024)
    (tmp_path / "in" / "dangling.txt").symlink_to(tmp_path / "nowhere")
    done = stack.cli("ingest", str(tmp_path / "in"), str(tmp_path / "missing"), "--kb", "paths", "--wait")
    shown = done.stdout + done.stderr
    assert done.returncode == 1
    assert "big.txt" in shown
    assert "missing" in shown
    assert [document["key"].endswith("good.txt") for document in api.documents("paths")] == [True]


def is_ready(stack: Stack) -> bool:
    with stack.client() as http:
        return http.get("/readyz").is_success


def test_a_second_stack_on_the_same_folder_is_refused(stack: Stack) -> None:
    second = stack.cli("up", timeout_s=60)
    assert second.returncode == 6
    assert stack.cli("up", "--detach", timeout_s=60).returncode == 6
    assert str(stack.data_dir) in second.stdout + second.stderr
    assert is_ready(stack)


def test_a_taken_port_is_named(stack: Stack, tmp_path: Path) -> None:
    port = stack.record["url"].rpartition(":")[2]
    other = Stack(tmp_path / "other", {"SOURCEMILL_PORT": port})
    refused = other.cli("up", timeout_s=60)
    assert refused.returncode != 0
    assert port in refused.stdout + refused.stderr


def test_without_a_stack_the_command_line_says_how_to_start_one(tmp_path: Path) -> None:
    done = Stack(tmp_path / "nothing").cli("status")
    assert done.returncode == 3
    assert "sourcemill up" in done.stdout + done.stderr


def test_an_unknown_setting_is_named(stack: Stack) -> None:
    command = [sys.executable, "-m", "api_gateway.cli", "status"]
    environment = {**stack.environment, "SOURCEMILL_MODLE": "x"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "SOURCEMILL_MODEL" in done.stdout + done.stderr


def test_stale_files_of_a_killed_stack_are_no_obstacle(tmp_path: Path) -> None:
    with running_stack(tmp_path / "data") as first:
        assert first.supervisor is not None
        first.supervisor.kill()
        first.supervisor.wait()
        first.supervisor = None
        again = Stack(tmp_path / "data")
        again.start()
        try:
            assert is_ready(again)
        finally:
            again.stop()


def test_a_refused_file_is_named_by_its_key(api: Api) -> None:
    kb = api.create_kb("refused keys")
    parts = [("files", ("empty.txt", b"")), ("files", ("empty.txt", b""))]
    response = api.http.post(f"/v1/knowledge-bases/{kb}/documents", files=parts, data={"keys": ["a/e.txt", "b/e.txt"]})
    assert [result["key"] for result in response.json()["results"]] == ["a/e.txt", "b/e.txt"]
