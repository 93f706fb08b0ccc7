"""Stores on a disk that fills up and gets room again: a small file system of our own, where Linux lets us mount one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PRELUDE = """
import os, subprocess, sys
from pathlib import Path
from pipeline.errors import TransientError
disk = sys.argv[1]
def room(size, *how):
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", f"{how[0] if how else ''}size={size}", "tmpfs", disk])
def fill(write):
    for number in range(10_000):
        try:
            write(number)
        except TransientError as error:
            assert error.code == "disk_full", error
            return number
room("1500k")
"""
_TEXT = """
from records import SCOPE, chunk
from pipeline.models import TextQuery
from pipeline.stores.text_tantivy import TantivyTextStore
store = TantivyTextStore(Path(disk) / "index")
def write(number):
    store.put([chunk(f"c{number}-{part}", f"common {os.urandom(200).hex()}") for part in range(20)])
full_at = fill(write)
def found():
    return len(store.search(TextQuery(any=("common",)), SCOPE, 100_000))
assert full_at > 0
assert store.count("doc-1") == found() == 20 * full_at
room("50m", "remount,")
write(full_at)
assert store.count("doc-1") == found() == 20 * (full_at + 1)
store.close()
store = TantivyTextStore(Path(disk) / "index")
assert found() == 20 * (full_at + 1)
"""
_VECTORS = """
import numpy as np
from records import SCOPE, chunk
from pipeline.stores.vector_edge import EdgeVectorStore
room("250m", "remount,")
store = EdgeVectorStore(Path(disk) / "vectors", "model", 384)
rows = np.random.default_rng(0).normal(size=(500, 384)).astype(np.float32)
full_at = fill(lambda number: store.put([chunk(f"c{number}-{part}") for part in range(500)], rows))
assert full_at > 0
assert store.count("doc-1") == len(store.search(rows[0], SCOPE, 1_000_000)) == 500 * full_at
room("500m", "remount,")
store.put([chunk("after", document_id="doc-2")], rows[:1])
assert store.count("doc-2") == 1
store.close()
"""
_BLOBS = """
from pipeline.stores.blob import ObstoreBlobStore
store = ObstoreBlobStore(Path(disk, "blobs").as_uri())
written = []
full_at = fill(lambda number: written.append(store.put("doc-1", os.urandom(100_000))))
assert full_at > 0
assert sorted(written) == store.list("doc-1")
assert not list(Path(disk).rglob("*#*")), "half-written files take the room that is missing"
try:
    store.put("doc-1", os.urandom(100_000))
except TransientError as error:
    assert disk in error.message
room("50m", "remount,")
store.put("doc-1", os.urandom(100_000))
assert len(store.list("doc-1")) == full_at + 1
"""


@pytest.mark.parametrize("script", [_TEXT, _VECTORS, _BLOBS], ids=["text", "vectors", "blobs"])
def test_a_full_disk_is_named_loses_nothing_and_heals(script: str, tmp_path: Path) -> None:
    mount = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets us mount no file system")
    done = subprocess.run(
        [*mount, sys.executable, "-c", _PRELUDE + script, str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
