"""Alembic's entry: runs migrations on the URL that `database.migrate` gives."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool

from pipeline.stores.schema import metadata

url = context.config.get_main_option("sqlalchemy.url")
if url is None:
    raise ValueError("sqlalchemy.url is not set")

engine = create_engine(url, poolclass=pool.NullPool)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
