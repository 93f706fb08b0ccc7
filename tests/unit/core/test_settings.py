from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigurationError
from pipeline.settings import PREFIX, Settings, child_environment, load_settings

EXAMPLE = Path(__file__).parents[3] / "deploy" / "env.example"


def documented() -> dict[str, str]:
    lines = [line.removeprefix("#") for line in EXAMPLE.read_text().splitlines()]
    return dict(line.split("=", 1) for line in lines if line.startswith(PREFIX))


def test_the_example_names_every_setting_and_no_other() -> None:
    assert set(documented()) == {PREFIX + name.upper() for name in Settings.model_fields}


def test_the_example_shows_the_defaults() -> None:
    shown = documented()
    per_machine = {"DATA_DIR", "EXTRACT_PROCESSES", "EMBED_PROCESSES"}
    for name in Settings.model_fields:
        if name.upper() in per_machine:
            continue
        given = load_settings({PREFIX + name.upper(): shown[PREFIX + name.upper()]})
        assert getattr(given, name) == getattr(load_settings({}), name), name


def test_an_unknown_variable_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigurationError, match=r"SOURCEMILL_MODLE is not a setting. Did you mean SOURCEMILL_MODEL\?"):
        load_settings({"SOURCEMILL_MODLE": "x"})


def test_a_bad_value_names_its_variable() -> None:
    with pytest.raises(ConfigurationError, match="SOURCEMILL_MAX_PAGES"):
        load_settings({"SOURCEMILL_MAX_PAGES": "many"})


def test_a_child_gets_the_same_settings() -> None:
    settings = load_settings({"SOURCEMILL_DATA_DIR": "/data/x", "SOURCEMILL_BROKER_URL": "redis://:pw@h:1/0"})
    assert load_settings(child_environment(settings)) == settings
    assert settings.stream_url.get_secret_value() == "redis://:pw@h:1/1"
    assert settings.catalog_url == "sqlite:////data/x/catalog.db"


def test_secrets_do_not_show() -> None:
    settings = load_settings({"SOURCEMILL_MODEL_API_KEY": "hunter2", "SOURCEMILL_BROKER_URL": "redis://:hunter2@h/0"})
    assert "hunter2" not in repr(settings)
