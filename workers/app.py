"""The Celery application: JSON only, no results, early acknowledgement, prefetch off (deploy/adr/0005).

The ledger redelivers, so a message is only a doorbell: losing one costs a second, getting one twice costs nothing.
"""

from __future__ import annotations

from celery import Celery

from pipeline.errors import ConfigurationError
from pipeline.settings import Settings
from workers.policies import MAINTENANCE_QUEUE, POLICIES, RECONCILE, RECONCILE_EVERY_S

#: A broker that does not answer within this time is treated as gone.
_SOCKET_TIMEOUT_S = 10.0


def create_celery(settings: Settings, *, runs_steps: bool = False) -> Celery:
    """The application; only one that runs steps imports what they need. Raises ConfigurationError without a broker."""
    broker_url = settings.broker_url.get_secret_value()
    if not broker_url:
        raise ConfigurationError("SOURCEMILL_BROKER_URL is not set. `sourcemill up` starts a broker and sets it.")
    include = ["workers.tasks"] if runs_steps else []
    app = Celery("sourcemill", broker=broker_url, include=include, set_as_current=False)
    app.conf.update(
        task_serializer="json",
        accept_content=["json"],
        event_serializer="json",
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_acks_late=False,
        task_routes=_routes(),
        task_create_missing_queues=True,
        task_default_queue=MAINTENANCE_QUEUE,
        task_send_sent_event=False,
        worker_send_task_events=True,
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_soft_shutdown_timeout=5.0,
        worker_enable_soft_shutdown_on_idle=False,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=_SOCKET_TIMEOUT_S,
        broker_transport_options=_TRANSPORT_OPTIONS,
        timezone="UTC",
        enable_utc=True,
        beat_schedule={
            RECONCILE: {
                "task": RECONCILE,
                "schedule": RECONCILE_EVERY_S,
                "options": {"queue": MAINTENANCE_QUEUE, "expires": 5 * RECONCILE_EVERY_S},
            }
        },
        beat_max_loop_interval=RECONCILE_EVERY_S,
    )
    return app


_TRANSPORT_OPTIONS = {
    "socket_timeout": _SOCKET_TIMEOUT_S,
    "socket_connect_timeout": _SOCKET_TIMEOUT_S,
    "socket_keepalive": True,
    "health_check_interval": 5,
    "queue_order_strategy": "priority",
    "max_retries": 1,
    "interval_start": 0.0,
    "interval_max": 0.2,
}


def _routes() -> dict[str, dict[str, str]]:
    routes = {kind.value: {"queue": policy.queue} for kind, policy in POLICIES.items()}
    return routes | {RECONCILE: {"queue": MAINTENANCE_QUEUE}}
