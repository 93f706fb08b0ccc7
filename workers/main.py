"""`celery -A workers.main`: the only module of this package with import-time work."""

from __future__ import annotations

from pipeline.settings import load_settings
from workers.app import create_celery
from workers.lifecycle import connect

app = create_celery(load_settings())
connect(app)
