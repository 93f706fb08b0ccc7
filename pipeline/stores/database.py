"""The one way to the SQL database: an engine with our rules, and transactions. migrate.py makes its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from pipeline.errors import ConfigurationError, ConflictError, PermanentError, StoreUnavailableError, TransientError
from pipeline.stores.schema import MIGRATION

#: How long a writer waits for SQLite's one write lock; ours are held for milliseconds.
_SQLITE_BUSY_S = 30.0
#: Connections kept and lent on top; the gateway serves 40 requests at once.
_POOL = 24


class Database:
    """Transactions on one database. Safe to use from several threads; never share one across a fork."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _open_engine(url)

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write; on SQLite it takes the write lock at once, so it can't deadlock.

        Raises StoreUnavailableError, ConflictError for a broken unique rule, TransientError `disk_full`.
        """
        with translated(self.url), self._engine.connect() as connection:
            if self._engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with translated(self.url), self._engine.connect() as connection:
            yield connection

    def check(self) -> None:
        """Raises StoreUnavailableError when it can't be reached, ConfigurationError when not migrated."""
        with self.read() as connection:
            found = _migration(connection)
        if found != MIGRATION:
            raise ConfigurationError(
                f"The catalog is at migration {found}, this version needs {MIGRATION}: "
                "run `sourcemill up`, which migrates it, or use the version that made it."
            )

    def close(self) -> None:
        self._engine.dispose()


def _migration(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return "none"
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def _open_engine(url: str) -> Engine:
    sqlite = url.startswith("sqlite")
    options: dict[str, Any] = {"connect_args": {"timeout": _SQLITE_BUSY_S}} if sqlite else {"pool_pre_ping": True}
    options |= {"pool_size": _POOL, "max_overflow": _POOL}
    engine = create_engine(
        url,
        json_serializer=lambda value: orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode(),
        json_deserializer=orjson.loads,
        **options,
    )
    if sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """WAL lets readers go on while one writes; NORMAL survives `kill -9` (not power loss) without an fsync each."""
    connection.isolation_level = None  # we begin transactions ourselves, see `write`
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "journal_size_limit=67108864"):
        connection.execute(f"PRAGMA {pragma}")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn the vendor's errors into ours; `url` says which database, without its password."""
    place = url.rsplit("@", 1)[-1]
    try:
        yield
    except IntegrityError as error:
        raise ConflictError(f"The catalog refused a duplicate: {error.orig}") from error
    except PoolTimeoutError as error:
        raise StoreUnavailableError(f"The catalog {place} has no connection free now.") from error
    except OperationalError as error:
        if "full" in str(error.orig):
            raise TransientError(
                f"The disk of the catalog {place} is full: free some space.", code="disk_full"
            ) from error
        raise StoreUnavailableError(f"The catalog {place} can't be used now: {error.orig}") from error
    except DBAPIError as error:
        raise PermanentError(f"The catalog refused a statement: {error.orig}") from error
