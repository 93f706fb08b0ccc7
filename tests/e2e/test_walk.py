"""The path that a user walks, over HTTP and on the command line, on the sample documents."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest

from tests.ledger_view import rows
from tests.stack import SAMPLES, Api, Stack, wait_for

EVALUATION = json.loads((SAMPLES.parent / "evaluation.json").read_text())
DEMO = json.loads((SAMPLES.parent / "questions.json").read_text())


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("question", DEMO, ids=lambda question: question["question"][:30])
def test_the_demo_questions_are_answered_or_abstained(api: Api, sample_kb: str, question) -> None:
    record = api.answer(question["question"], sample_kb)
    cited = {citation["key"] for citation in record["model_response"]["citations"]}
    assert record["model_response"]["status"] == "finished"
    assert record["abstained"] is question["abstain"]
    assert set(question["expect"]) <= cited


def test_most_sample_questions_are_answered_with_the_right_quote(api: Api, sample_kb: str) -> None:
    found = []
    for case in EVALUATION["answerable"]:
        citations = api.answer(case["question"], sample_kb)["model_response"]["citations"]
        quotes = [flat(citation["cited_text"]) for citation in citations if citation["key"] == case["file"]]
        wanted = flat(case["answer_quote"])
        found.append(any(wanted in quote or quote in wanted for quote in quotes))
    assert sum(found) >= 12, [c["question"] for c, ok in zip(EVALUATION["answerable"], found, strict=True) if not ok]


def test_questions_far_from_the_samples_are_abstained(api: Api, sample_kb: str) -> None:
    for case in EVALUATION["unanswerable"]:
        if not case["near_miss"]:
            assert api.answer(case["question"], sample_kb)["abstained"] is True, case["question"]


def test_every_citation_is_a_slice_of_the_original(api: Api, sample_kb: str) -> None:
    record = api.answer(DEMO[0]["question"], sample_kb)
    (citation, *_) = record["model_response"]["citations"]
    assert citation["page_number"] == 3
    assert citation["end"] - citation["start"] == len(citation["cited_text"])
    assert citation["boxes"], "a quote on a PDF page has boxes"
    assert {box["page"] for box in citation["boxes"]} == {3}


def test_the_events_of_an_answer_are_contiguous_and_end_once(api: Api, sample_kb: str) -> None:
    message_id = api.ask(DEMO[0]["question"], sample_kb)
    events = list(api.events(message_id))
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] in {"finished", "failed", "cancelled"}] == ["finished"]
    assert events[-1]["type"] == "finished"
    text = "".join(event["data"]["text"] for event in events if event["type"] == "delta")
    assert flat(text) in flat(events[-1]["data"]["model_response"]["content"]) or text
    assert events[-1]["data"]["message_id"] == message_id


def test_the_same_bytes_again_are_unchanged(api: Api, sample_kb: str) -> None:
    (result,) = api.upload(sample_kb, {"security-incidents.md": (SAMPLES / "security-incidents.md").read_bytes()})
    assert result["outcome"] == "unchanged"


def test_a_changed_document_answers_with_its_old_text_until_the_new_one_is_ready(api: Api) -> None:
    kb = api.create_kb("changes")
    api.upload(kb, {"moon.txt": b"The lunar base of the society is named Selene Station."})
    api.wait_documents(kb, 60)
    assert "Selene" in api.answer("How is the lunar base of the society named?", kb)["model_response"]["content"]
    (result,) = api.upload(kb, {"moon.txt": b"The lunar base of the society is named Artemis House."})
    assert (result["outcome"], result["revision"]) == ("accepted", 2)
    api.wait_documents(kb, 60)
    content = api.answer("How is the lunar base of the society named?", kb)["model_response"]["content"]
    assert "Artemis" in content
    assert "Selene" not in content


def test_a_delete_takes_effect_at_once_and_leaves_nothing(api: Api, stack: Stack) -> None:
    kb = api.create_kb("deletes")
    (result,) = api.upload(kb, {"secret.txt": b"The password of the old lighthouse is marmalade."})
    api.wait_documents(kb, 60)
    assert api.http.delete(f"/v1/documents/{result['document_id']}").is_success
    assert api.answer("What is the password of the old lighthouse?", kb)["abstained"] is True
    assert api.http.get(f"/v1/documents/{result['document_id']}").status_code == 404
    assert api.documents(kb) == []
    statement = "SELECT output FROM steps WHERE kind = 'ingest.remove' AND state = 'done' AND subject = ?"
    receipt = wait_for(lambda: rows(stack.data_dir, statement, f"{result['document_id']}:1"), 30, "the receipt")
    assert json.loads(receipt[0][0]) == {"text_chunks": 0, "vectors": 0, "blobs": 0}


def test_two_knowledge_bases_answer_together_and_apart(api: Api) -> None:
    one, two = api.create_kb("planets"), api.create_kb("rivers")
    api.upload(one, {"a.txt": b"The probe Kepler-9 weighs exactly 478 kilograms at launch."})
    api.upload(two, {"a.txt": b"The ferry on the river Oskara leaves every 25 minutes."})
    api.wait_documents(one, 60)
    api.wait_documents(two, 60)
    both = api.answer("How much does the probe Kepler-9 weigh at launch?", one, two)
    assert {citation["kb_id"] for citation in both["model_response"]["citations"]} == {one}
    assert {query["kb_id"] for query in both["search_queries"]} == {one, two}
    assert api.answer("How much does the probe Kepler-9 weigh at launch?", two)["abstained"] is True


def test_the_command_line_walks_the_same_path(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "note.txt").write_text("The annual fair of Brindle Bay opens on 14 May.")
    (folder / "empty.txt").write_text("")
    assert stack.cli("kb", "create", "cli").returncode == 0
    assert stack.cli("kb", "create", "cli").returncode != 0
    ingested = stack.cli("ingest", str(folder), "--kb", "cli", "--wait", "--json")
    assert ingested.returncode == 1, "the empty file is a failure, the other one is ingested"
    listed = stack.cli("documents", "list", "--kb", "cli", "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in listed] == ["ready"]
    again = json.loads(stack.cli("ingest", str(folder), "--kb", "cli", "--wait", "--json").stdout)
    assert [document["state"] for document in again["documents"]] == ["ready"], "unchanged ones are waited for too"
    asked = stack.cli("ask", "When does the annual fair of Brindle Bay open?", "--kb", "cli", "--json")
    assert asked.returncode == 0, asked.stderr
    assert "14 May" in json.loads(asked.stdout)["model_response"]["content"]
    assert stack.cli("status", "--json").returncode == 0


def test_flower_shows_the_tasks_by_name_behind_a_password(stack: Stack, api: Api, sample_kb: str) -> None:
    api.answer(DEMO[0]["question"], sample_kb)
    url = stack.record["flower_url"]
    assert httpx.get(url).status_code == 401
    auth = (stack.credentials["flower_user"], stack.credentials["flower_password"])

    def names() -> set[str]:
        tasks = httpx.get(f"{url}/api/tasks", auth=auth, timeout=20).json()
        return {task["name"] for task in tasks.values()}

    wait_for(lambda: {"ingest.plan", "chat.generate"} <= names(), 30, "Flower to show the tasks")


def test_the_api_page_needs_nothing_from_elsewhere(api: Api) -> None:
    page = api.http.get("/docs").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert addresses
    for address in addresses:
        assert address.startswith("/"), address
        assert api.http.get(address).is_success, address
    assert api.http.get("/openapi.json").json()["info"]["title"] == "Sourcemill"
