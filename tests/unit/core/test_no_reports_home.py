"""No library that we load reports to its maker, whatever its default is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORK = """
from pipeline.inference.embedder import OnnxEmbedder, bundled_model_dir
OnnxEmbedder(bundled_model_dir(), threads=1).embed_query("Does anyone listen?")
"""


def test_embedding_leaves_nothing_in_the_users_home(tmp_path: Path) -> None:
    """CI must not be set: the library that reports is silent there, and the fault would not show."""
    hiding = {"CI", "DO_NOT_TRACK", "ORT_DISABLE_TELEMETRY"}
    environment = {name: value for name, value in os.environ.items() if name not in hiding}
    subprocess.run([sys.executable, "-c", WORK], env={**environment, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []
