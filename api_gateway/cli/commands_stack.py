"""Commands about the stack itself: up, down, status, keys."""

from __future__ import annotations

from typing import Annotated

import typer

from api_gateway.cli.catalog_child import TENANT, KeyRequest, request_key
from api_gateway.cli.connection import open_api
from api_gateway.cli.detach import start_detached
from api_gateway.cli.down import stop_stack
from api_gateway.cli.files import make_folders
from api_gateway.cli.options import Json
from api_gateway.cli.output import Output
from api_gateway.cli.process import tail
from api_gateway.cli.record import read_record
from api_gateway.cli.signals import stop_signals
from api_gateway.cli.stack import run_stack
from api_gateway.cli.status import show_status, watch_status
from pipeline.settings import load_settings

keys = typer.Typer(no_args_is_help=True, help="API keys of the local catalog.")


def up(
    as_json: Json = False,
    detach: Annotated[bool, typer.Option("--detach", help="Come back when it is ready; `down` stops it.")] = False,
) -> None:
    """Run the whole stack in the foreground, restarting what dies, until Ctrl-C.

    With --json, each event is one line: `ready` (addresses, and the API key when one was made), `exit`, `stopped`.
    Exit code 6: a stack already runs on this data folder, or a port is taken.
    """
    settings, output = load_settings(), Output(as_json=as_json)
    if detach:
        record = start_detached(settings)
        facts = {"event": "ready", "url": record.url, "flower_url": record.flower_url}
        output.event(tail(settings.data_dir / "logs" / "up.log"), **facts)
        return
    with stop_signals() as stop:
        run_stack(settings, output, stop)


def down(as_json: Json = False) -> None:
    """Stop the stack of this data folder, and wait until it is gone. Nothing to stop is fine."""
    output = Output(as_json=as_json)
    settings = load_settings()
    stopped = stop_stack(settings)
    output.line("Stopped." if stopped else f"No stack runs on {settings.data_dir}.")
    output.data({"stopped": stopped})


def status(
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
) -> None:
    """Show queues and their workers, documents by state, and the stack's processes on this machine."""
    settings = load_settings()
    record = None if settings.url else read_record(settings.data_dir)
    with open_api(settings) as api:
        (watch_status if watch else show_status)(api, record, Output(as_json=as_json))


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    tenant: Annotated[str, typer.Option(help="Whose documents it opens. An unknown tenant is a new one.")] = TENANT,
    as_json: Json = False,
) -> None:
    """Make an API key and print it once; only its hash is kept. Works without a running stack."""
    output = Output(as_json=as_json)
    settings = load_settings()
    make_folders(settings.data_dir)
    made = request_key(settings, KeyRequest(name, tenant))
    output.line(made["api_key"])
    output.data({**made, "tenant": tenant, "name": name})


def register(app: typer.Typer) -> None:
    for command in (up, down, status):
        app.command()(command)
    app.add_typer(keys, name="keys")
