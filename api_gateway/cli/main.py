"""The command line's entry: the commands together, and what an error means to the shell."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from api_gateway.cli import commands_data, commands_demo, commands_stack
from api_gateway.cli.api import UnreachableError
from api_gateway.cli.output import ExitCode, Output
from pipeline.errors import (
    ConfigurationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SourcemillError,
    TooLargeError,
    UnauthorizedError,
)

_EPILOG = (
    "Exit codes: 0 done; 1 something failed; 2 wrong usage or request; 3 no server; 4 not found; 5 not allowed; "
    "6 name, port or data folder taken; 7 the answer abstained; 130 interrupted. "
    "Settings are SOURCEMILL_* variables, see deploy/env.example."
)

_CODES: tuple[tuple[type[SourcemillError], ExitCode], ...] = (
    (UnreachableError, ExitCode.UNREACHABLE),
    (NotFoundError, ExitCode.NOT_FOUND),
    (UnauthorizedError, ExitCode.UNAUTHORIZED),
    (ConflictError, ExitCode.CONFLICT),
    (InvalidInputError, ExitCode.USAGE),
    (TooLargeError, ExitCode.USAGE),
    (ConfigurationError, ExitCode.USAGE),
)


def create_app() -> typer.Typer:
    app = typer.Typer(
        help="Turns piles of documents into answers whose every citation is proven.",
        epilog=_EPILOG,
        no_args_is_help=True,
        invoke_without_command=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    commands_stack.register(app)
    commands_data.register(app)
    commands_demo.register(app)
    return app


def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(metadata.version("sourcemill"))
        raise typer.Exit


def run() -> None:
    """The console script. Our own errors become one line and an exit code; others are bugs and show where."""
    try:
        create_app()()
    except SourcemillError as error:
        sys.exit(report(error, Output(as_json="--json" in sys.argv)))
    except OSError as error:
        if error.filename is not None:
            raise
        sys.exit(f"Error: the output can't be written: {error.strerror}")


def report(error: SourcemillError, output: Output) -> ExitCode:
    output.data({"error": {"code": error.code, "detail": error.message}})
    output.remark(f"Error: {error.message}", style="red")
    return exit_code(error)


def exit_code(error: SourcemillError) -> ExitCode:
    if error.code == "port_taken":
        return ExitCode.CONFLICT
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.FAILED)
