"""Runs a writer in a process of its own and kills it with SIGKILL while it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def acknowledged_before_kill(script: str, *arguments: str, count: int) -> list[str]:
    """Run `script` (Python source that prints one line after each acknowledged write), kill it after `count` lines.

    Returns every line that it managed to print, which is what a store must still have.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    process.kill()
    lines += process.stdout.readlines()
    process.stdout.close()
    process.wait()
    whole = [line.strip() for line in lines if line.endswith("\n")]
    assert len(whole) >= count, "the writer died by itself"
    return whole
