"""What the terminal shows of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_gateway.cli.ask import AnswerView, exit_code, remarks
from api_gateway.cli.demo import Question
from api_gateway.cli.output import ExitCode, Output, printable, size

CITATION = {"marker": 1, "key": "docs/leave.pdf", "page_number": 3, "cited_text": "at most\n240 hours"}


def record(content="240 hours [1].", status="finished", **more):
    response = {"content": content, "citations": [CITATION], "status": status, **more.pop("response", {})}
    return {"message_id": "m", "model_response": response, **more}


@pytest.fixture
def view():
    return AnswerView(Output(as_json=False))


def test_an_answer_is_shown_as_it_comes_and_its_citations_after_it(view, capsys):
    for text in ("240 ", "hours [1]."):
        view.on_event("delta", {"text": text})
    assert capsys.readouterr().out == "240 hours [1]."
    view.finish(record())
    assert capsys.readouterr().out == "\n[1] docs/leave.pdf, page 3\n    “at most 240 hours”\n"


def test_a_snapshot_after_a_break_adds_only_what_is_new(view, capsys):
    view.on_event("delta", {"text": "240 "})
    view.on_event("snapshot", {"model_response": {"content": "240 hours"}})
    assert capsys.readouterr().out == "240 hours"


def test_a_new_attempt_is_announced_and_shown_from_its_beginning(view, capsys):
    view.on_event("delta", {"text": "Perhaps"})
    view.on_event("reset", {})
    view.on_event("delta", {"text": "240"})
    assert capsys.readouterr().out == "Perhaps\nThe answer starts again:\n240"


@given(st.lists(st.text(alphabet="ab ", min_size=1, max_size=5), max_size=8))
def test_whatever_the_pieces_the_whole_answer_is_on_the_screen_once(pieces):
    output = Output(as_json=False)
    with output.console.capture() as capture:
        view = AnswerView(output)
        for piece in pieces:
            view.on_event("delta", {"text": piece})
        view.finish(record("".join(pieces) + "!", response={"citations": []}))
    assert capture.get() == "".join(pieces) + "!\n"


def test_limits_of_an_answer_are_said_plainly():
    limited = record(
        abstained=True,
        unverified=[{"marker": 1, "cited_text": "250", "reason": "not in the source"}],
        degraded=[{"part": "vectors", "code": "no_vectors", "reason": "still being embedded", "kb_id": None}],
    )
    assert remarks(limited) == [
        "Not verified: “250” (not in the source)",
        "Degraded: vectors: still being embedded (no_vectors)",
        "Abstained.",
    ]


def test_a_failure_is_told_with_its_reason_and_missing_proof_with_numbers():
    failed = record(status="failed", error={"code": "unknown_model", "message": "No such model."})
    assert remarks(failed) == ["The answer failed: No such model."]
    assert remarks(record(coverage={"sentences": 3, "proven": 3})) == []
    assert remarks(record(coverage={"sentences": 3, "proven": 1})) == ["Only 1 of 3 sentences have a proven citation."]


def test_scripts_can_tell_an_answer_from_an_abstention_and_a_failure():
    assert exit_code(record()) is ExitCode.OK
    assert exit_code(record(abstained=True)) is ExitCode.ABSTAINED
    assert exit_code(record(status="failed")) is ExitCode.FAILED


@pytest.mark.parametrize(
    ("question", "answer", "unmet"),
    [
        (Question("?", ("leave.pdf",), abstain=False), record(), None),
        (Question("?", ("other.pdf",), abstain=False), record(), "it cites leave.pdf, not other.pdf"),
        (Question("?", (), abstain=True), record(), "it answered what the documents do not say"),
        (Question("?", (), abstain=True), record(abstained=True), None),
        (Question("?"), record(abstained=True), None),
        (Question("?"), record(status="failed"), "the answer failed"),
    ],
)
def test_the_demo_holds_answers_against_what_is_expected(question, answer, unmet):
    assert question.unmet(answer) == unmet


def test_a_documents_text_can_not_steer_the_terminal():
    assert printable("a\x1b[2J\u202eb\n") == "a�[2J�b\n"


def test_sizes_have_units_that_people_read():
    assert [size(n) for n in (5, 2048, 3.5 * 2**20, 2**31)] == ["5 B", "2.0 KiB", "3.5 MiB", "2.0 GiB"]
