from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack import SAMPLES, Api, Stack, running_stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory):
    """One undisturbed stack for every test that harms nothing."""
    with running_stack(tmp_path_factory.mktemp("stack") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def api(stack: Stack):
    with stack.client() as http:
        yield Api(http)


def samples() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(SAMPLES.iterdir())}


@pytest.fixture(scope="session")
def sample_kb(api: Api) -> str:
    """A knowledge base with the sample documents, all ready."""
    kb = api.create_kb("samples")
    assert {result["outcome"] for result in api.upload(kb, samples())} == {"accepted"}
    documents = api.wait_documents(kb, 120)
    assert {document["state"] for document in documents} == {"ready"}
    return kb


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
