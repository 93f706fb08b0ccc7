"""The secrets of an embedded stack: made at its first start, kept in one private file."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import Path

from api_gateway.cli.files import write_private
from pipeline.errors import ConfigurationError
from pipeline.models import dump, load


@dataclass(frozen=True, slots=True)
class Credentials:
    redis_password: str
    flower_user: str
    flower_password: str
    api_key: str = ""

    def with_api_key(self, api_key: str) -> Credentials:
        return replace(self, api_key=api_key)


def credentials_path(data_dir: Path) -> Path:
    return data_dir / "credentials.json"


def new_credentials() -> Credentials:
    return Credentials(secrets.token_urlsafe(24), "sourcemill", secrets.token_urlsafe(12))


def save_credentials(data_dir: Path, credentials: Credentials) -> None:
    write_private(credentials_path(data_dir), dump(credentials))


def load_credentials(data_dir: Path) -> Credentials | None:
    """None before the first start. Raises ConfigurationError when the file is damaged or another user's."""
    path = credentials_path(data_dir)
    try:
        return load(Credentials, path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}. Remove it and start again for new ones.") from error
