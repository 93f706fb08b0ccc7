"""The parser process: what it survives, what it refuses, what it knows. And the zoo of hostile files."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from pipeline.errors import DocumentError, ParserCrashError
from pipeline.ingest.limits import MIB, ParserLimits
from pipeline.ingest.sandbox import ParserChild
from pipeline.models import ExtractedShard, MediaType, Probe
from tests.unit.ingest.files import ZOO, drawn_pdf, package, write

LIMITS = ParserLimits(cpu_s=20, wall_s=30)
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or needs RLIMIT_AS")


@pytest.fixture
def child():
    with ParserChild(LIMITS) as parser:
        yield parser


@pytest.fixture
def pdf_path(tmp_path: Path) -> Path:
    return write(tmp_path, "a.pdf", drawn_pdf([["Hello world."], ["Second."]]))


def slow_page(tmp_path: Path) -> Path:
    """Several seconds of honest work."""
    return write(tmp_path, "slow.html", "<html>" + "<p>x</p>" * 1_200_000)


def test_a_document_goes_through_the_child(child: ParserChild, pdf_path: Path) -> None:
    assert child.pid is None
    assert child.probe(pdf_path, "a.pdf") == Probe(MediaType.PDF, 2, None)
    shard = child.extract(pdf_path, MediaType.PDF, 1, 2)
    assert isinstance(shard, ExtractedShard)
    assert [page.text for page in shard.pages] == ["Hello world.\n", "Second.\n"]
    (box,) = child.locate(pdf_path, 1, 6, 11)
    assert (box.page, box.left < box.right, box.bottom < box.top) == (1, True, True)


def test_the_child_is_kept_between_documents_and_replaced_after_its_share(pdf_path: Path) -> None:
    with ParserChild(ParserLimits(documents_per_child=2)) as parser:
        pids = [parser.probe(pdf_path, "a.pdf") and parser.pid for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_refusal_crosses_the_pipe_with_code_and_message(child: ParserChild, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="a ZIP archive") as caught:
        child.probe(write(tmp_path, "a.zip", package({"a": "b"})), "a.zip")
    assert caught.value.code == "unsupported_type"


def test_closing_ends_the_process_and_a_later_call_starts_another(pdf_path: Path) -> None:
    parser = ParserChild(LIMITS)
    parser.probe(pdf_path, "a.pdf")
    pid = parser.pid
    parser.close()
    parser.close()
    assert not psutil.pid_exists(pid or 0)
    assert parser.probe(pdf_path, "a.pdf").page_count == 2
    parser.close()


def test_a_child_killed_in_mid_call_is_a_crash_and_the_next_call_works(
    child: ParserChild, tmp_path: Path, pdf_path: Path
) -> None:
    child.probe(pdf_path, "a.pdf")
    killer = threading.Timer(0.5, os.kill, (child.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(ParserCrashError, match="SIGKILL"):
        child.extract(slow_page(tmp_path), MediaType.HTML, 1, 1)
    killer.join()
    assert child.probe(pdf_path, "a.pdf").page_count == 2


def test_a_child_that_died_between_calls_is_replaced_silently(child: ParserChild, pdf_path: Path) -> None:
    child.probe(pdf_path, "a.pdf")
    os.kill(child.pid or 0, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(child.pid)] if psutil.pid_exists(child.pid or 0) else [], timeout=1)
    assert child.probe(pdf_path, "a.pdf").page_count == 2


def test_a_call_over_its_cpu_time_is_stopped_with_that_reason(tmp_path: Path, pdf_path: Path) -> None:
    with ParserChild(ParserLimits(cpu_s=1, wall_s=60)) as parser:
        with pytest.raises(ParserCrashError, match="more than 1 seconds of CPU time"):
            parser.extract(slow_page(tmp_path), MediaType.HTML, 1, 1)
        assert parser.probe(pdf_path, "a.pdf").page_count == 2


def test_a_call_over_its_wall_time_is_stopped_with_that_reason(pdf_path: Path) -> None:
    with ParserChild(ParserLimits(wall_s=3)) as parser:
        parser.probe(pdf_path, "a.pdf")
        os.kill(parser.pid or 0, signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(ParserCrashError, match="stopped after 3 seconds"):
            parser.probe(pdf_path, "a.pdf")
        assert time.monotonic() - started < 5
        assert parser.probe(pdf_path, "a.pdf").page_count == 2


@needs_linux
def test_a_memory_bomb_is_stopped_with_that_reason(tmp_path: Path, pdf_path: Path) -> None:
    bomb = write(tmp_path, "bomb.html", "<html>" + "<p>x</p>" * 4_000_000)
    with ParserChild(ParserLimits(memory_bytes=500 * MIB)) as parser:
        with pytest.raises(ParserCrashError, match="more than 500 MiB of memory"):
            parser.extract(bomb, MediaType.HTML, 1, 1)
        assert parser.probe(pdf_path, "a.pdf").page_count == 2


def test_a_text_larger_than_its_limit_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "x" * 3 * MIB)
    with ParserChild(ParserLimits(result_bytes=2 * MIB)) as parser:
        with pytest.raises(DocumentError, match="larger than 2 MiB") as caught:
            parser.extract(path, MediaType.TEXT, 1, 1)
        assert caught.value.code == "too_much_text"
        assert parser.probe(path, "a.txt").page_count == 1


def test_threads_share_one_child(child: ParserChild, pdf_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        shards = list(threads.map(lambda number: child.extract(pdf_path, MediaType.PDF, number, number), [1, 2] * 10))
    assert [shard.pages[0].number for shard in shards] == [1, 2] * 10


def test_a_child_outlives_the_thread_that_started_it(child: ParserChild, pdf_path: Path) -> None:
    starter = threading.Thread(target=child.probe, args=(pdf_path, "a.pdf"))
    starter.start()
    starter.join()
    pid = child.pid
    time.sleep(0.1)
    child.probe(pdf_path, "a.pdf")
    assert child.pid == pid


@needs_linux
def test_a_fork_starts_a_child_of_its_own_and_leaves_the_parents_alone(child: ParserChild, pdf_path: Path) -> None:
    child.probe(pdf_path, "a.pdf")
    pid = child.pid
    forked = os.fork()
    if forked == 0:
        is_own = child.probe(pdf_path, "a.pdf").page_count == 2 and child.pid != pid
        child.close()
        os._exit(0 if is_own else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert child.probe(pdf_path, "a.pdf").page_count == 2
    assert child.pid == pid


@needs_linux
def test_the_child_dies_with_its_parent_even_while_it_works(tmp_path: Path, pdf_path: Path) -> None:
    read_end, write_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        parser = ParserChild(LIMITS)
        parser.probe(pdf_path, "a.pdf")
        os.write(write_end, str(parser.pid).encode())
        parser.extract(slow_page(tmp_path), MediaType.HTML, 1, 1)
        os._exit(0)
    process = psutil.Process(int(os.read(read_end, 20)))
    time.sleep(0.5)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    gone, _ = psutil.wait_procs([process], timeout=3)
    os.close(read_end)
    os.close(write_end)
    assert gone


@needs_linux
def test_the_child_knows_no_environment_but_its_own(
    child: ParserChild, pdf_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCEMILL_MODEL_KEY", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    child.probe(pdf_path, "a.pdf")
    environment = Path(f"/proc/{child.pid}/environ").read_text()
    names = {entry.partition("=")[0] for entry in environment.split("\0") if entry}
    assert names <= {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUTF8", "LC_ALL", "MALLOC_ARENA_MAX"}
    assert "secret" not in environment


@needs_linux
def test_the_child_is_bounded_and_holds_none_of_our_files(child: ParserChild, pdf_path: Path, tmp_path: Path) -> None:
    with write(tmp_path, "open.txt", "ours").open():
        child.probe(pdf_path, "a.pdf")
        process = psutil.Process(child.pid)
        assert process.rlimit(psutil.RLIMIT_AS)[0] == LIMITS.memory_bytes
        assert process.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)
        assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        assert process.open_files() == []
        assert process.net_connections() == []


CONFINED = """
import os, socket, subprocess
from pipeline.ingest.limits import ParserLimits
from pipeline.ingest.parser import _confine
_confine(ParserLimits())
for attempt in (
    lambda: socket.create_connection(("127.0.0.1", 9)),
    lambda: socket.getaddrinfo("localhost", 80),
    lambda: subprocess.run(["true"]),
    lambda: os.system("true"),
    lambda: os.execv("/bin/true", ["true"]),
    os.fork,
):
    try:
        attempt()
    except PermissionError as error:
        print("refused", error)
    else:
        print("ALLOWED")
try:
    with open("written.txt", "w") as file:
        file.write("x" * 10)
except OSError as error:
    print("refused", error)
"""


def test_network_programs_and_written_files_are_refused(tmp_path: Path) -> None:
    # A process of its own: an audit hook can't be taken off again.
    import subprocess  # noqa: PLC0415

    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", CONFINED],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.count("refused") == 7
    assert "ALLOWED" not in done.stdout
    assert (tmp_path / "written.txt").stat().st_size == 0


def zoo() -> list[dict]:
    manifest = ZOO / "manifest.jsonl"
    return [json.loads(line) for line in manifest.read_text().splitlines()] if manifest.exists() else []


#: What a clean end may be for each expectation: a text, or one of these codes. Formats to come are unsupported.
CODES = {
    "error": {"empty_file", "broken_docx", "broken_pdf", "unsupported_type"},
    "password": {"password_protected"},
    "text-or-password": {"password_protected", "unsupported_type"},
}
LATER_FORMATS = {"email", "epub", "image", "office-odf", "office-pptx", "office-xlsx", "rtf", "archive"}


@pytest.mark.shared_data
@pytest.mark.skipif(not ZOO.exists(), reason="the measurement data is missing")
def test_every_file_of_the_zoo_ends_as_expected_in_bounded_time() -> None:
    surprises = []
    with ParserChild(LIMITS) as parser:
        for item in zoo():
            started = time.monotonic()
            code, text = end_of(parser, ZOO / item["file"])
            if not is_expected(item, code, text) or time.monotonic() - started > LIMITS.wall_s:
                surprises.append((item["file"], item["expect"], code, text[:80]))
    assert surprises == []


def end_of(parser: ParserChild, path: Path) -> tuple[str, str]:
    """The error's code, else "", and the text."""
    try:
        probe = parser.probe(path, path.name)
        shards = [
            parser.extract(path, probe.media_type, first, min(first + 15, probe.page_count))
            for first in range(1, probe.page_count + 1, 16)
        ]
    except (DocumentError, ParserCrashError) as error:
        return error.code, ""
    return "", "".join(page.text for shard in shards for page in shard.pages)


def is_expected(item: dict, code: str, text: str) -> bool:
    expect = item["expect"]
    if expect in CODES:
        return code in CODES[expect]
    if expect == "no-leak":
        return "root:" not in text
    if expect in {"empty-text", "ocr"}:
        return not text.strip() and code in {"", "unsupported_type"}
    if expect == "text":
        return bool(text.strip()) or (item["category"] in LATER_FORMATS and code == "unsupported_type")
    return True


BOMBS = ["pdf-hostile/bomb_giant.pdf", "archive/droste.zip", "pdf-hostile/Pages-tree-refs.pdf"]


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.shared_data
@pytest.mark.skipif(not ZOO.exists(), reason="the measurement data is missing")
@needs_linux
def test_bombs_cost_little(name: str) -> None:
    with ParserChild(LIMITS) as parser:
        started = time.monotonic()
        end_of(parser, ZOO / "files" / name)
        assert time.monotonic() - started < 10
        assert psutil.Process(parser.pid).memory_info().rss < 500 * MIB
