"""`celery -A workers.main worker`: the application of the processes that run steps."""

from __future__ import annotations

from pipeline.settings import load_settings
from workers.app import create_celery
from workers.lifecycle import connect

app = create_celery(load_settings(), runs_steps=True)
connect(app)
