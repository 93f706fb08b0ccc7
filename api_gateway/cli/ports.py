"""Ports for the stack."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pipeline.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PortWish:
    """A port to bind on `host`; 0 is any that is free. `setting` is the variable that chooses it."""

    host: str
    port: int
    setting: str


def choose_ports(wishes: Sequence[PortWish]) -> list[int]:
    """A free port for each wish, all different. Raises ConfigurationError `port_taken`, naming the setting."""
    with ExitStack() as held:
        return [held.enter_context(_bind(wish)).getsockname()[1] for wish in wishes]


def _bind(wish: PortWish) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(wish.host, wish.port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ConfigurationError(f"SOURCEMILL_HOST: {wish.host} is no address of this machine.") from error
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(1)  # SO_REUSEADDR alone would share a port that another one has bound but not opened yet
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"Port {wish.port} on {wish.host} can't be used ({error.strerror}). "
            f"Set {wish.setting} to another one, or to 0 for any that is free.",
            code="port_taken",
        ) from error
    return bound
