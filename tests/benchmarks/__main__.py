"""`make bench`: what the embedded stack does on real files, next to its engines' own figures in the same run.

Writes build/bench.json with flat keys. Needs the measurement data beside the clone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.settings import load_settings
from pipeline.wiring import open_resources
from tests.benchmarks.ceilings import embedder_chunks_per_s, pdfium_pages_per_s
from tests.ledger_view import rows
from tests.stack import FINAL_STATES, REPOSITORY, Api, Stack, running_stack, wait_for
from workers.policies import POLICIES

DATA = REPOSITORY.parent / "shared" / "data"
QUESTIONS = 10
CORPUS_FILES = 500
Results = dict[str, Any]


def show(results: Results, name: str, value: float | str, unit: str = "") -> None:
    results[name] = round(value, 3) if isinstance(value, float) else value
    print(f"  {name:48} {results[name]} {unit}".rstrip(), flush=True)


def upload_all(api: Api, kb: str, files: list[Path], batch: int = 16) -> None:
    for start in range(0, len(files), batch):
        api.upload(kb, {path.name: path.read_bytes() for path in files[start : start + batch]})


def moments(data_dir: Path, kb: str) -> tuple[float, float, float]:
    """(first upload, last document searchable, last document final), seconds since the epoch."""
    statement = "SELECT times FROM revisions WHERE kb_id = ?"
    times = [json.loads(row[0]) for row in rows(data_dir, statement, kb)]
    searchable = [t.get("searchable", t.get("ready", t.get("empty", t.get("failed", 0.0)))) for t in times]
    return min(t["queued"] for t in times), max(searchable), max(max(t.values()) for t in times)


def ingest_pdfs(stack: Stack, api: Api, results: Results) -> str:
    """The FinanceBench filings; first the engines alone, then the pipeline with nothing else running."""
    files = sorted((DATA / "pdfqa" / "financebench" / "pdfs").glob("*.pdf"))
    cores = os.cpu_count() or 1
    print(f"{len(files)} PDFs")
    raw_pages = pdfium_pages_per_s(files, cores)
    show(results, "pdf.pypdfium2_pages_per_s", raw_pages, f"pages/s, {cores} processes")
    kb = api.create_kb("pdfs")
    upload_all(api, kb, files, batch=4)
    documents = api.wait_documents(kb, 1800)
    show(results, "pdf.states", str(dict(Counter(document["state"] for document in documents))))
    pages = sum(document["page_count"] for document in documents)
    chunks = sum(document["chunk_count"] for document in documents)
    queued, searchable, ready = moments(stack.data_dir, kb)
    pages_per_s, chunks_per_s = pages / (searchable - queued), chunks / (ready - queued)
    show(results, "pdf.pages", pages)
    show(results, "pdf.chunks", chunks)
    show(results, "pdf.searchable_pages_per_s", pages_per_s, "pages/s, upload to searchable, embedding beside it")
    show(results, "pdf.ratio_to_pdfium", pages_per_s / raw_pages)
    show(results, "pdf.ready_chunks_per_s", chunks_per_s, "chunks/s, upload to ready")
    raw_chunks = embedder_chunks_per_s(chunk_texts(stack.data_dir, kb), cores)
    show(results, "pdf.embedder_chunks_per_s", raw_chunks, f"chunks/s, the embedder alone, {cores} processes")
    show(results, "pdf.ratio_to_embedder", chunks_per_s / raw_chunks)
    return kb


def chunk_texts(data_dir: Path, kb: str) -> list[str]:
    """What the pipeline embeds: each chunk under its header."""
    settings = load_settings({"SOURCEMILL_DATA_DIR": str(data_dir)})
    statement = "SELECT area, output FROM steps JOIN revisions USING (subject) WHERE kind = ? AND kb_id = ?"
    texts: list[str] = []
    with open_resources(settings, POLICIES) as resources:
        for area, output in rows(data_dir, statement, "ingest.assemble", kb):
            for blob, _ in json.loads(output)["batches"]:
                texts += [f"{c['header']}\n\n{c['text']}" for c in json.loads(resources.blobs.get(area, blob))]
    return texts


def ingest_corpus(stack: Stack, api: Api, results: Results) -> None:
    """500 files of the throughput corpus, evenly taken."""
    with tempfile.TemporaryDirectory() as folder:
        files = unpack(Path(folder), CORPUS_FILES)
        print(f"{len(files)} documents")
        kb = api.create_kb("corpus")
        upload_all(api, kb, files, batch=32)
        documents = api.wait_documents(kb, 2400)
    queued, searchable, ready = moments(stack.data_dir, kb)
    show(results, "corpus.bytes", sum(document["size_bytes"] for document in documents))
    show(results, "corpus.states", str(dict(Counter(document["state"] for document in documents))))
    reasons = Counter(d["error_code"] for d in documents if d["state"] == "failed")
    show(results, "corpus.failure_codes", str(dict(reasons)))
    show(results, "corpus.searchable_documents_per_s", len(documents) / (searchable - queued), "documents/s")
    show(results, "corpus.ready_documents_per_s", len(documents) / (ready - queued), "documents/s")
    show(results, "corpus.chunks", sum(document["chunk_count"] or 0 for document in documents))
    show(results, "corpus.ready_chunks_per_s", results["corpus.chunks"] / (ready - queued), "chunks/s")


def unpack(folder: Path, count: int) -> list[Path]:
    """Evenly spaced members, under flat names that are unique."""
    with tarfile.open(DATA / "corpora" / "docs.tar.xz") as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        step = max(1, len(members) // count)
        found = []
        for member in members[::step][:count]:
            source = archive.extractfile(member)
            if source is not None:
                path = folder / member.name.replace("/", "__")
                path.write_bytes(source.read())
                found.append(path)
    return found


def first_token_s(api: Api, kb: str, question: str) -> float:
    """Seconds from sending the question to the first delta, over the event stream."""
    thread = api.http.post("/v1/threads", json={"kb_ids": [kb]}).json()["id"]
    started = time.monotonic()
    path = f"/v1/threads/{thread}/messages"
    with api.http.stream("POST", path, json={"content": question}, params={"stream": "true"}) as response:
        for line in response.iter_lines():
            if line == "event: delta":
                return time.monotonic() - started
    raise AssertionError("the stream ended without any text")


def ask_at_once(stack: Stack, kb: str, questions: list[str]) -> list[float]:
    """Ten clients at once; seconds to first token of each."""
    times: list[float] = []

    def ask(question: str) -> None:
        with stack.client() as http:
            times.append(first_token_s(Api(http), kb, question))

    threads = [threading.Thread(target=ask, args=(question,)) for question in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(times) != len(questions):
        raise AssertionError(f"{len(questions) - len(times)} of {len(questions)} questions got no answer")
    return times


def answering(stack: Stack, api: Api, kb: str, results: Results) -> None:
    """Time to first token: one at a time and ten at once, idle; ten at once while an ingest runs."""
    lines = (DATA / "pdfqa" / "financebench" / "questions.jsonl").read_text().splitlines()
    questions = [json.loads(line)["question"] for line in lines[:QUESTIONS]]
    print(f"{len(questions)} questions")
    for question in questions:
        first_token_s(api, kb, question)
    alone = [first_token_s(api, kb, question) for question in questions for _ in range(3)]
    show_times(results, "answer.first_token_idle_one", alone)
    show_times(results, "answer.first_token_idle_ten", ask_at_once(stack, kb, questions))
    busy = api.create_kb("busy")
    files = sorted((DATA / "pdfqa" / "financebench" / "pdfs").glob("*.pdf"))[:4]
    upload_all(api, busy, files, batch=4)
    wait_for(lambda: {d["state"] for d in api.documents(busy)} <= {"searchable", *FINAL_STATES}, 300, "text")
    show_times(results, "answer.first_token_busy_ten", ask_at_once(stack, kb, questions))
    still = [document["state"] for document in api.documents(busy)]
    show(results, "answer.busy_ingest_still_running", str("searchable" in still))
    api.wait_documents(busy, 1800)


def show_times(results: Results, name: str, seconds: list[float]) -> None:
    show(results, f"{name}_p50_ms", 1000 * statistics.median(seconds), "ms")
    show(results, f"{name}_p95_ms", 1000 * sorted(seconds)[int(0.95 * (len(seconds) - 1))], "ms")


def memory(stack: Stack, results: Results) -> None:
    """The peak of each process and the proportional share of the whole stack now."""
    print("memory")
    total = 0
    for name, processes in stack.processes().items():
        peaks = [peak_mib(process.pid) for process in processes]
        total += sum(process.memory_full_info().pss for process in processes)
        show(results, f"memory.{name}_peak_mib", max(peaks), f"MiB, largest of {len(peaks)}")
    show(results, "memory.stack_pss_mib", total / 2**20, "MiB now, all processes")


def peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["pdf", "corpus", "all"], default="all")
    only = parser.parse_args().only
    if not DATA.is_dir():
        sys.exit(f"The measurement data is not at {DATA.name}/ beside this clone; nothing was measured.")
    results: Results = {"date": datetime.now(UTC).isoformat(), "machine": platform.platform(), "cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as folder, running_stack(Path(folder) / "data") as stack, stack.client() as http:
        api = Api(http)
        if only in {"pdf", "all"}:
            kb = ingest_pdfs(stack, api, results)
            answering(stack, api, kb, results)
        if only in {"corpus", "all"}:
            ingest_corpus(stack, api, results)
        memory(stack, results)
    target = REPOSITORY / "build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to build/{target.name}")


if __name__ == "__main__":
    main()
