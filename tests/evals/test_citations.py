"""Every citation on real filings, checked by a reader that shares no code with the product."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
import pytest

from tests.stack import Stack, running_stack

pytestmark = [pytest.mark.slow, pytest.mark.shared_data, pytest.mark.timeout(1200)]

QUESTIONS = 10


@pytest.fixture(scope="module")
def filings(shared_data: Path) -> Path:
    return shared_data / "pdfqa" / "financebench"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, filings: Path) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("filings") / "data") as running:
        assert running.cli("kb", "create", "filings").returncode == 0
        done = running.cli("ingest", str(filings / "pdfs"), "--kb", "filings", "--wait", timeout_s=1000)
        assert done.returncode == 0, done.stdout + done.stderr
        yield running


def questions(filings: Path) -> list[str]:
    """The first ten, answerable by quoting or not."""
    lines = (filings / "questions.jsonl").read_text().splitlines()
    return [json.loads(line)["question"] for line in lines[:QUESTIONS]]


def page_text(pdf: Path, number: int) -> str:
    document = pypdfium2.PdfDocument(pdf)
    try:
        return document[number - 1].get_textpage().get_text_range()
    finally:
        document.close()


def bare(text: str) -> str:
    """Without white space, and with a line-end hyphen as PDFium shows it to us."""
    return "".join(text.replace("\ufffe", "-").replace("\x02", "-").split())


def test_every_cited_text_is_on_the_named_page(stack: Stack, filings: Path) -> None:
    checked = 0
    for question in questions(filings):
        asked = stack.cli("ask", question, "--kb", "filings", "--json")
        assert asked.returncode in {0, 7}, asked.stderr
        record = json.loads(asked.stdout)
        for citation in record["model_response"]["citations"]:
            shown = bare(page_text(Path(citation["key"]), citation["page_number"]))
            assert bare(citation["cited_text"]) in shown, (question, citation["cited_text"])
            assert citation["boxes"]
            checked += 1
    assert checked >= QUESTIONS // 2, "too few citations to say anything"
