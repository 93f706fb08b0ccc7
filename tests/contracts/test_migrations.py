"""Migrations make exactly the tables of the schema, forth and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from pipeline.errors import ConfigurationError
from pipeline.stores.database import Database
from pipeline.stores.migrate import alembic_config
from pipeline.stores.schema import MIGRATION


def test_the_newest_migration_is_the_one_of_the_schema(catalog_url: str) -> None:
    config = alembic_config(catalog_url)
    assert ScriptDirectory.from_config(config).get_current_head() == MIGRATION
    command.check(config)  # raises when the tables differ from the schema


def test_migrations_go_back_to_nothing(catalog_url: str) -> None:
    command.downgrade(alembic_config(catalog_url), "base")
    database = Database(catalog_url)
    with database.read() as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    database.close()


def test_a_catalog_of_another_version_is_named(catalog_url: str, tmp_path: Path) -> None:
    current = Database(catalog_url)
    current.check()
    current.close()
    empty = Database(f"sqlite:///{tmp_path / 'empty.db'}")
    with pytest.raises(ConfigurationError, match="at migration none, this version needs"):
        empty.check()
    empty.close()
