"""Arguments, exit codes, and errors as the shell sees them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from api_gateway.cli.api import UnreachableError, segment
from api_gateway.cli.commands_demo import load_questions
from api_gateway.cli.connection import open_api
from api_gateway.cli.credentials import new_credentials
from api_gateway.cli.demo import demo_settings
from api_gateway.cli.main import exit_code
from api_gateway.cli.output import ExitCode
from api_gateway.cli.readiness import missing_workers
from api_gateway.cli.services import services
from pipeline.errors import (
    ConfigurationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TransientError,
    UnauthorizedError,
)
from pipeline.settings import load_settings
from workers.policies import WORKERS

ROOT = Path(__file__).parents[3]


def sourcemill(data_dir, *arguments, **settings):
    given = {f"SOURCEMILL_{name.upper()}": value for name, value in {"data_dir": str(data_dir), **settings}.items()}
    return subprocess.run(
        [sys.executable, "-m", "api_gateway.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError("x"), 3),
        (NotFoundError("x"), 4),
        (UnauthorizedError("x"), 5),
        (ConflictError("x"), 6),
        (ConfigurationError("x", code="port_taken"), 6),
        (ConfigurationError("x"), 2),
        (TransientError("x"), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error, code):
    assert exit_code(error) == code


def test_without_a_stack_the_error_says_how_to_start_one(tmp_path):
    text = sourcemill(tmp_path, "kb", "list")
    assert (text.returncode, text.stdout) == (ExitCode.UNREACHABLE, "")
    assert "sourcemill up" in text.stderr
    assert text.stderr.count("\n") == 1


def test_with_json_an_error_is_json_too(tmp_path):
    answered = sourcemill(tmp_path, "kb", "list", "--json")
    assert json.loads(answered.stdout)["error"]["code"] == "unreachable"


def test_a_wrong_setting_is_an_error_in_one_line_that_names_it(tmp_path):
    refused = sourcemill(tmp_path, "status", embed_proceses="2")
    assert refused.returncode == ExitCode.USAGE
    assert "SOURCEMILL_EMBED_PROCESSES" in refused.stderr


def test_wrong_usage_is_exit_code_two_and_help_lists_the_codes(tmp_path):
    assert sourcemill(tmp_path, "ask").returncode == ExitCode.USAGE
    shown = sourcemill(tmp_path, "--help")
    assert shown.returncode == ExitCode.OK
    assert "7 the answer" in " ".join(shown.stdout.split())


def test_a_key_of_the_local_stack_is_never_sent_to_another_server(tmp_path):
    settings = load_settings({"SOURCEMILL_DATA_DIR": str(tmp_path), "SOURCEMILL_URL": "http://elsewhere"})
    with pytest.raises(UnauthorizedError, match="SOURCEMILL_API_KEY"):
        open_api(settings)


def test_the_demo_never_uses_the_users_own_storage(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCEMILL_CATALOG_URL", "postgresql://production/db")
    monkeypatch.setenv("SOURCEMILL_MODEL", "some/model")
    settings = demo_settings(tmp_path)
    assert settings.catalog_url == f"sqlite:///{tmp_path}/catalog.db"
    assert (settings.model, settings.port) == ("some/model", 0)


def test_the_samples_questions_can_be_read():
    questions = load_questions(ROOT / "deploy" / "samples" / "questions.json")
    assert any(question.abstain for question in questions)
    assert len({name for question in questions for name in question.expect}) >= 2


def test_workers_are_missing_until_someone_consumes_each_of_their_queues():
    names = [kind.name for kind in WORKERS]
    rows = [{"queue": queue, "workers": 1} for kind in WORKERS for queue in kind.queues]
    assert missing_workers(None) == names
    assert missing_workers(rows) == []
    alive = [{**row, "workers": int(row["queue"] not in {"extract", "answer"})} for row in rows]
    assert missing_workers(alive) == ["extract", "answer"]


def test_children_get_our_settings_and_none_of_the_shells_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    specs = services(load_settings({"SOURCEMILL_DATA_DIR": str(tmp_path)}), new_credentials())
    assert len({spec.name for spec in specs}) == len(specs)
    for spec in specs:
        assert spec.environment["SOURCEMILL_DATA_DIR"] == str(tmp_path)
        assert spec.environment["DO_NOT_TRACK"] == "1"
        assert "AWS_SECRET_ACCESS_KEY" not in spec.environment


@pytest.mark.parametrize("text", ["../threads/1", "a/b", "a?b#c", "..%2f", "日本"])
def test_an_id_is_one_part_of_a_path_whatever_it_holds(text):
    assert set(segment(text)).isdisjoint("/?#")


def test_bytes_that_are_no_text_are_refused():
    with pytest.raises(InvalidInputError, match="is no text"):
        segment("\udcff")


def test_an_empty_path_is_refused(tmp_path):
    done = sourcemill(tmp_path, "ingest", "")
    assert done.returncode == 2
    assert "empty" in done.stderr


def test_the_data_folder_is_private_whoever_makes_it(tmp_path):
    done = sourcemill(tmp_path / "new", "keys", "create", "first")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
