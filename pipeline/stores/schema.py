"""The tables of the catalog and the ledger. Migrations under stores/migrations make exactly these.

Times are seconds since the epoch, UTC (REAL): the ledger compares and adds them in SQL on every database.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

#: The migration that makes exactly these tables; a test holds it to the newest one.
MIGRATION = "0001"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: SQLite numbers rows by itself only for INTEGER PRIMARY KEY.
RowId = BigInteger().with_variant(Integer, "sqlite")

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(64), nullable=False),
    Column("name", String(255), nullable=False),
    Column("secret_hash", String(64), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
)

knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(64), nullable=False),
    Column("name", String(255), nullable=False),
    Column("description", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("tenant_id", "name"),
)

documents = Table(
    "documents",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(64), nullable=False),
    Column("kb_id", ForeignKey("knowledge_bases.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("live_revision", Integer),
    Column("created_at", Float, nullable=False),
    Column("deleted_at", Float),
    Index("ix_documents_kb_id", "kb_id", "id"),
    Index(
        "uq_documents_live_key",
        "kb_id",
        "key",
        unique=True,
        sqlite_where=text("deleted_at IS NULL"),
        postgresql_where=text("deleted_at IS NULL"),
    ),
)

revisions = Table(
    "revisions",
    metadata,
    Column("subject", String(64), primary_key=True),
    Column("document_id", ForeignKey("documents.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("tenant_id", String(64), nullable=False),
    Column("kb_id", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("area", String(32), nullable=False),
    Column("content_blob", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("title", Text),
    Column("media_type", String(128)),
    Column("page_count", Integer),
    Column("chunk_count", Integer),
    Column("char_count", BigInteger),
    Column("text_blob", String(64)),
    Column("outline_blob", String(64)),
    Column("missing_pages", JSON),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("times", JSON, nullable=False),
    Column("removed", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("document_id", "number"),
)

threads = Table(
    "threads",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(64), nullable=False),
    Column("params", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("deleted_at", Float),
    Index("ix_threads_tenant_id", "tenant_id", "id"),
)

messages = Table(
    "messages",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("thread_id", ForeignKey("threads.id"), nullable=False),
    Column("tenant_id", String(64), nullable=False),
    Column("content", Text, nullable=False),
    Column("params", JSON, nullable=False),
    Column("status", String(32), nullable=False),
    Column("record", JSON),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
    Column("published", Boolean, nullable=False, server_default=text("false")),
    Index("ix_messages_thread_id", "thread_id", "created_at"),
    Index("ix_messages_published", "published", "finished_at"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant_id", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("created_at", Float, nullable=False),
)

steps = Table(
    "steps",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("tenant_id", String(64), nullable=False),
    Column("subject", String(64), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("shard", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("queue", String(32), nullable=False),
    Column("weight", Integer, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False),
    Column("fence", Integer, nullable=False, server_default=text("0")),
    Column("lease_owner", String(255)),
    Column("lease_until", Float),
    Column("not_before", Float, nullable=False, server_default=text("0")),
    Column("sent_at", Float),
    Column("input", JSON, nullable=False),
    Column("output", JSON),
    Column("error_code", String(64)),
    Column("error", Text),
    Column("work_s", Float),
    Column("peak_rss_bytes", BigInteger),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("finished_at", Float),
    UniqueConstraint("subject", "kind", "shard"),
    CheckConstraint("state IN ('ready','running','done','failed','dead','cancelled')", name="state"),
    Index("ix_steps_queue", "queue", "state", "tenant_id", "id"),
    Index("ix_steps_finished", "queue", "finished_at"),
)

workers = Table(
    "workers",
    metadata,
    Column("name", String(255), primary_key=True),
    Column("queues", JSON, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("seen_at", Float, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(255), nullable=False),
    Column("until", Float, nullable=False),
)
