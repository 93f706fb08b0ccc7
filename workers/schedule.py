"""`celery -A workers.schedule`: the application of beat and Flower, which run no steps and so need few libraries."""

from __future__ import annotations

from celery import signals

from pipeline.logs import configure_logging
from pipeline.settings import load_settings
from workers.app import create_celery


def _configure_logging(**_: object) -> None:
    configure_logging(load_settings().log_level)


app = create_celery(load_settings())
signals.setup_logging.connect(_configure_logging)
