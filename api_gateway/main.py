"""The gateway's process: `python -m api_gateway.main`, or `uvicorn api_gateway.main:app`.

The only module of the gateway that does something when it is imported.
"""

from __future__ import annotations

import socket

import uvicorn

from api_gateway.app import create_app
from pipeline.logs import configure_logging
from pipeline.settings import load_settings

#: How long requests may take to end after the server was told to stop.
_GRACE_S = 5

_settings = load_settings()
configure_logging(_settings.log_level)
app = create_app(_settings)


class GatewayServer(uvicorn.Server):
    """Ends the event streams first: uvicorn waits for every connection, and a stream may go on for ever."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        app.state.gateway.feed.close()
        await super().shutdown(sockets)


def run() -> None:
    config = uvicorn.Config(
        app,
        host=_settings.host,
        port=_settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    GatewayServer(config).run()


if __name__ == "__main__":
    run()
