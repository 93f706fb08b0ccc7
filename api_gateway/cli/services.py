"""The processes of the embedded stack, in the order in which they are listed to the user."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import api_gateway
from api_gateway.cli.credentials import Credentials
from api_gateway.cli.process import ProcessSpec
from pipeline.settings import Settings, child_environment, process_environment
from workers.policies import WORKERS, WorkerKind

#: What a child keeps of our environment; settings are added, secrets of the user's shell are not passed on.
_KEPT = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
    | {"SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
)

#: Parallelism comes from processes; one thread a library in each, and no telemetry.
_FIXED = {
    "DO_NOT_TRACK": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_ARENA_MAX": "2",
    "PYTHONUNBUFFERED": "1",
}


def base_environment() -> dict[str, str]:
    """The least that a program needs."""
    kept = {
        name: value
        for name, value in process_environment().items()
        if name.upper() in _KEPT or name.startswith(("LC_", "PYTHON"))
    }
    return kept | _FIXED | {"PYTHONPATH": code_path()}


def code_path() -> str:
    """A PYTHONPATH with which another process imports the code that we run, from whichever folder."""
    code = str(Path(api_gateway.__file__).parents[1])
    return ":".join(part for part in (code, process_environment().get("PYTHONPATH", "")) if part)


def services(settings: Settings, credentials: Credentials) -> list[ProcessSpec]:
    """All but the broker. `settings` are those of the running stack: real ports, the broker's URL."""
    environment = base_environment() | child_environment(settings)
    return [
        _gateway(environment),
        *(_worker(kind, settings, environment) for kind in WORKERS),
        _beat(settings, environment),
        _flower(settings, credentials, environment),
    ]


def _celery(application: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "-A", application, *arguments)


def _worker(kind: WorkerKind, settings: Settings, environment: Mapping[str, str]) -> ProcessSpec:
    size = getattr(settings, kind.size_setting)
    options = ("-Q", ",".join(kind.queues), "--pool", kind.pool, "--concurrency", str(size))
    quiet = ("--without-gossip", "--without-mingle", "--loglevel", settings.log_level)
    command = _celery("workers.main", "worker", "-n", f"{kind.name}@%h", *options, *quiet)
    # SIGQUIT is Celery's soft shutdown: running tasks get worker_soft_shutdown_timeout, then it goes.
    return ProcessSpec(kind.name, command, environment, kind.nice, stop_rank=1, stop_signal=signal.SIGQUIT)


def _gateway(environment: Mapping[str, str]) -> ProcessSpec:
    return ProcessSpec("gateway", (sys.executable, "-m", "api_gateway.main"), environment)


def _beat(settings: Settings, environment: Mapping[str, str]) -> ProcessSpec:
    schedule = settings.data_dir / "run" / "beat-schedule"
    # No pid file: the lock on the data folder keeps a second beat away, and a stale file would keep this one away.
    options = ("--schedule", str(schedule), "--pidfile", "", "--loglevel", settings.log_level)
    return ProcessSpec("beat", _celery("workers.schedule", "beat", *options), environment)


def _flower(settings: Settings, credentials: Credentials, environment: Mapping[str, str]) -> ProcessSpec:
    """Its options go through the environment, because everyone can read a password on a command line."""
    options = {
        "FLOWER_ADDRESS": "127.0.0.1",
        "FLOWER_PORT": str(settings.flower_port),
        "FLOWER_BASIC_AUTH": f"{credentials.flower_user}:{credentials.flower_password}",
        "FLOWER_UNAUTHENTICATED_API": "false",
        "FLOWER_PERSISTENT": "true",
        "FLOWER_DB": str(settings.data_dir / "run" / "flower"),
        "FLOWER_MAX_TASKS": "10000",
    }
    return ProcessSpec("flower", _celery("workers.schedule", "flower"), {**environment, **options})
