"""Where the commands find their server: the settings, else the stack that runs on the data folder."""

from __future__ import annotations

from api_gateway.cli.api import Api, UnreachableError
from api_gateway.cli.credentials import load_credentials
from api_gateway.cli.record import read_record
from pipeline.errors import UnauthorizedError
from pipeline.settings import Settings


def open_api(settings: Settings) -> Api:
    """Raises UnreachableError when no server is known, UnauthorizedError when no key is."""
    key = settings.api_key.get_secret_value()
    if settings.url:
        if not key:  # the local stack's key is never sent to another server
            raise UnauthorizedError("SOURCEMILL_URL is set but SOURCEMILL_API_KEY is not.")
        return Api(settings.url, key)
    return Api(_local_url(settings), key or _local_key(settings))


def _local_url(settings: Settings) -> str:
    record = read_record(settings.data_dir)
    if record is None:
        raise UnreachableError(
            f"No stack runs on {settings.data_dir}. Start it with `sourcemill up`, or set SOURCEMILL_URL."
        )
    return record.url


def _local_key(settings: Settings) -> str:
    credentials = load_credentials(settings.data_dir)
    if credentials is None or not credentials.api_key:
        raise UnauthorizedError(f"There is no API key in {settings.data_dir}: set SOURCEMILL_API_KEY.")
    return credentials.api_key
