"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts and nothing else on standard output.")]
KbName = Annotated[str | None, typer.Option("--kb", help="Knowledge base, by name or id. Default: `default`.")]
