"""Brings the SQL database to the newest migration; apart, because only one process of a stack needs Alembic."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config

from pipeline.stores.database import translated


def migrate(url: str) -> None:
    """Bring the database to the newest migration, making it when it is not there. Raises StoreUnavailableError."""
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    with translated(url):
        command.upgrade(alembic_config(url), "head")


def alembic_config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config
