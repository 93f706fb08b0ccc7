"""Private files of the data folder: written whole or not at all, readable by their owner only."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import ConfigurationError, ConflictError

#: The folders of a running stack, below the data folder.
FOLDERS = ("run", "logs", "valkey")


def write_private(path: Path, data: bytes) -> None:
    """Replace a file atomically, mode 0600: a reader sees the old bytes or the new ones."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


def make_folders(data_dir: Path) -> None:
    """Make what is missing, mode 0700. Raises ConfigurationError when the disk or the rights refuse."""
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        data_dir.chmod(0o700)
        for name in FOLDERS:
            folder = data_dir / name
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(
            f"The data folder {data_dir} can't be used: {error.strerror}. Choose another with SOURCEMILL_DATA_DIR."
        ) from error


@contextmanager
def exclusive(data_dir: Path) -> Iterator[None]:
    """Own the data folder. Raises ConflictError `already_running` while another process does.

    The kernel drops the lock when its owner dies, however it dies, so the file itself means nothing.
    """
    path = data_dir / "run" / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(_who(path, data_dir), code="already_running") from error
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def refuse_owned(data_dir: Path) -> None:
    """Raises ConflictError `already_running` while a supervisor runs on the data folder."""
    if is_owned(data_dir):
        raise ConflictError(_who(data_dir / "run" / "lock", data_dir), code="already_running")


def is_owned(data_dir: Path) -> bool:
    """Whether a supervisor runs on the data folder now."""
    try:
        descriptor = os.open(data_dir / "run" / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _who(path: Path, data_dir: Path) -> str:
    pid = path.read_text().strip() or "?"
    return (
        f"A stack already runs on {data_dir} (process {pid}). Stop it with `sourcemill down`, "
        "or choose another folder with SOURCEMILL_DATA_DIR."
    )
