"""Fixtures that every folder of tests shares: a migrated catalog, real servers, the measurement data."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.stores.database import Database
from pipeline.stores.migrate import migrate

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture
def catalog_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    migrate(url)
    return url


@pytest.fixture
def database(catalog_url: str):
    opened = Database(catalog_url)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the measurement data is not beside this clone")
    return folder
