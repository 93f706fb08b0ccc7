"""The only reader of the environment.

Every variable is `SOURCEMILL_` + the upper-case field name. An unknown `SOURCEMILL_*` variable is an error that
names the nearest known one: a typo must not run production on a default.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pipeline.errors import ConfigurationError

PREFIX = "SOURCEMILL_"
MIB = 1024 * 1024

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Port = Annotated[int, Field(ge=0, le=65535)]


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "sourcemill"


def _cores() -> int:
    return os.cpu_count() or 1


class Settings(BaseSettings):
    """One field a setting; deploy/env.example documents each and a test holds the two together."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # the names are pydantic-settings' own
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`load_settings` hands over the variables, so that a test or a child process can have others than ours."""
        return (init_settings,)

    data_dir: Path = Field(default_factory=_default_data_dir)
    catalog_url: str = ""
    broker_url: SecretStr = SecretStr("")
    stream_url: SecretStr = SecretStr("")
    blob_store_url: str = ""
    text_store_url: str = "tantivy://"
    vector_store_url: str = "edge://"
    embedder_url: str = "onnx://bge-small-en-v1.5"

    model: str = "extractive"
    model_base_url: str = ""
    model_api_key: SecretStr = SecretStr("")
    model_timeout_s: Seconds = 60.0

    host: str = "127.0.0.1"
    port: Port = 8080
    flower_port: Port = 5555
    url: str = ""
    api_key: SecretStr = SecretStr("")

    extract_processes: Count = Field(default_factory=_cores)
    embed_processes: Count = Field(default_factory=_cores)
    store_threads: Count = 12
    answer_threads: Count = 16

    max_file_bytes: Count = 100 * MIB
    max_pages: Count = 10_000
    max_question_chars: Count = 20_000
    max_queued_steps: Count = 500_000
    parser_memory_bytes: Count = 1024 * MIB
    parser_timeout_s: Seconds = 120.0
    retrieve_deadline_s: Seconds = 20.0
    answer_deadline_s: Seconds = 600.0
    stream_ttl_s: Count = 24 * 3600
    log_level: str = "INFO"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from the environment. Raises ConfigurationError that names the variable and what to do."""
    variables = os.environ if environ is None else environ
    ours = {name: value for name, value in variables.items() if name.upper().startswith(PREFIX)}
    _refuse_unknown(ours)
    try:
        given = {name[len(PREFIX) :].lower(): value for name, value in ours.items()}
        return with_defaults(Settings.model_validate(given))
    except ValidationError as error:
        problem = error.errors(include_input=False)[0]
        name = PREFIX + str(problem["loc"][0]).upper()
        raise ConfigurationError(f"{name}: {problem['msg']}. See deploy/env.example.") from error


def with_defaults(settings: Settings) -> Settings:
    """Fill the URLs that follow from the data folder when they were not given."""
    folder = settings.data_dir.expanduser().absolute()
    return settings.model_copy(
        update={
            "data_dir": folder,
            "catalog_url": settings.catalog_url or f"sqlite:///{folder / 'catalog.db'}",
            "blob_store_url": settings.blob_store_url or f"file://{folder / 'blobs'}",
            "stream_url": _stream_url(settings),
        }
    )


def _stream_url(settings: Settings) -> SecretStr:
    """Streams live in database 1 of the broker's server unless they have a server of their own."""
    given, broker = settings.stream_url.get_secret_value(), settings.broker_url.get_secret_value()
    return SecretStr(given or (broker.rsplit("/", 1)[0] + "/1" if broker else ""))


def _refuse_unknown(names: Iterable[str]) -> None:
    known = [PREFIX + field.upper() for field in Settings.model_fields]
    for name in names:
        if name.upper() not in known:
            near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.0)
            raise ConfigurationError(f"{name} is not a setting. Did you mean {near[0]}? See deploy/env.example.")


def child_environment(settings: Settings) -> dict[str, str]:
    """The variables that start another process with exactly these settings."""
    values: dict[str, str] = {}
    for field in Settings.model_fields:
        value = getattr(settings, field)
        values[PREFIX + field.upper()] = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    return values


def process_environment() -> dict[str, str]:
    """This process's environment, for a child that needs PATH, HOME and the locale."""
    return dict(os.environ)
