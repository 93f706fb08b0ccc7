"""What one start of the stack runs with: settings with real ports and addresses, secrets, and the processes."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pydantic import SecretStr

from api_gateway.cli.catalog_child import KeyRequest, request_key
from api_gateway.cli.credentials import Credentials, load_credentials, new_credentials, save_credentials
from api_gateway.cli.ports import PortWish, choose_ports
from api_gateway.cli.process import ProcessSpec, start_time
from api_gateway.cli.record import ProcessId, StackRecord
from api_gateway.cli.services import base_environment
from api_gateway.cli.valkey import BROKER_DATABASE, STREAM_DATABASE, valkey, valkey_url
from pipeline.settings import Settings

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Plan:
    """`broker` is None when SOURCEMILL_BROKER_URL names a server that others run."""

    settings: Settings
    credentials: Credentials
    broker: ProcessSpec | None
    record: StackRecord

    @property
    def broker_url(self) -> str:
        return self.settings.broker_url.get_secret_value()


def make_plan(settings: Settings) -> Plan:
    """Choose ports and load or make secrets. Raises ConfigurationError `port_taken`."""
    wishes = (
        PortWish(settings.host, settings.port, "SOURCEMILL_PORT"),
        PortWish(LOOPBACK, settings.flower_port, "SOURCEMILL_FLOWER_PORT"),
        PortWish(LOOPBACK, 0, "SOURCEMILL_BROKER_URL"),
    )
    port, flower_port, broker_port = choose_ports(wishes)
    credentials = load_credentials(settings.data_dir) or new_credentials()
    save_credentials(settings.data_dir, credentials)
    settings = settings.model_copy(update={"port": port, "flower_port": flower_port})
    broker = None
    if not settings.broker_url.get_secret_value():
        broker = valkey(broker_port, credentials.redis_password, settings.data_dir, base_environment())
        settings = _with_broker(settings, broker_port, credentials.redis_password)
    return Plan(settings, credentials, broker, _record(settings))


def _with_broker(settings: Settings, port: int, password: str) -> Settings:
    stream_url = settings.stream_url.get_secret_value() or valkey_url(port, password, STREAM_DATABASE)
    return settings.model_copy(
        update={
            "broker_url": SecretStr(valkey_url(port, password, BROKER_DATABASE)),
            "stream_url": SecretStr(stream_url),
        }
    )


def _record(settings: Settings) -> StackRecord:
    host = LOOPBACK if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 -- not a bind
    address = f"[{host}]" if ":" in host else host
    pid = os.getpid()
    return StackRecord(
        supervisor=ProcessId(pid, start_time(pid) or 0.0),
        url=f"http://{address}:{settings.port}",
        flower_url=f"http://{LOOPBACK}:{settings.flower_port}",
    )


def prepare_catalog(plan: Plan) -> str | None:
    """Migrate the catalog, and make an API key unless the one we hold works; the new key, or None.

    The key is in the private file before anyone sees it. Raises ConfigurationError.
    """
    request = KeyRequest("first start", held=plan.credentials.api_key, starts_stack=True)
    key = request_key(plan.settings, request).get("api_key")
    if key:
        save_credentials(plan.settings.data_dir, plan.credentials.with_api_key(key))
    return key
