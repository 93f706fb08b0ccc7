"""Which files a list of paths means, and their keys."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_gateway.cli.upload import BATCH_BYTES, BATCH_FILES, batches
from api_gateway.cli.walk import FoundFile, Skipped, find_files
from pipeline.errors import InvalidInputError

LIMIT = 1000


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a/x.txt", "a/y.txt", ".hidden", "a/.git/config"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return Path(os.path.realpath(tmp_path))


def keys(paths, root=None):
    return [each.key for each in find_files(paths, root, LIMIT) if isinstance(each, FoundFile)]


def skipped(paths):
    return {Path(each.path).name: each for each in find_files(paths, None, LIMIT) if isinstance(each, Skipped)}


def test_a_folder_means_all_its_visible_files_in_the_order_of_names(folder):
    assert keys([folder]) == [str(folder / name) for name in ("a/x.txt", "a/y.txt", "b.txt")]


def test_a_key_does_not_depend_on_the_way_to_the_file(folder, monkeypatch):
    monkeypatch.chdir(folder / "a")
    ways = [[Path()], [Path("..")], [folder / "a" / "x.txt"], [folder / "a" / ".." / "a"], [Path("x.txt")]]
    assert all(str(folder / "a" / "x.txt") in keys(way) for way in ways)


def test_a_file_that_is_named_twice_is_found_once(folder):
    assert len(keys([folder, folder / "a", folder / "b.txt"])) == 3


def test_a_hidden_file_is_found_when_it_is_named(folder):
    assert keys([folder / ".hidden"]) == [str(folder / ".hidden")]


def test_with_a_root_keys_are_relative_to_it(folder):
    assert keys([folder / "a"], folder) == ["a/x.txt", "a/y.txt"]


def test_a_path_outside_the_root_is_an_error_that_names_it(folder):
    with pytest.raises(InvalidInputError, match=r"b\.txt"):
        keys([folder / "b.txt"], folder / "a")


def test_a_link_to_a_folder_is_left_out_and_said_so_it_can_not_loop(folder):
    (folder / "a" / "loop").symlink_to(folder)
    found = skipped([folder])
    assert found["loop"].code == "linked_folder"
    assert not found["loop"].failure
    assert len(keys([folder])) == 3


def test_a_link_to_a_file_is_followed_under_its_own_name(folder):
    (folder / "link.txt").symlink_to(folder / "b.txt")
    assert str(folder / "link.txt") in keys([folder])


def test_what_can_not_be_sent_is_named_with_its_reason_and_the_rest_goes_on(folder):
    (folder / "big.bin").write_bytes(b"x" * (LIMIT + 1))
    (folder / "dangling").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe")
    found = skipped([folder, folder / "not-there"])
    codes = {name: each.code for name, each in found.items()}
    expected = {"big.bin": "too_large", "dangling": "missing_file", "pipe": "not_a_file", "not-there": "missing_file"}
    assert codes == expected
    assert "SOURCEMILL_MAX_FILE_BYTES" in found["big.bin"].reason
    assert len(keys([folder])) == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_rights_is_named(folder):
    (folder / "a").chmod(0)
    try:
        assert skipped([folder])["a"].code == "unreadable_folder"
    finally:
        (folder / "a").chmod(0o700)


def test_a_name_that_is_not_utf_8_has_a_key_that_can_be_sent(tmp_path):
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")  # noqa: PTH118 -- bytes
    try:
        os.close(os.open(name, os.O_CREAT))
    except OSError:
        pytest.skip("this file system has no such names")
    (key,) = keys([tmp_path])
    assert key.encode().endswith(rb"caf\xe9.txt")


sizes = st.lists(st.integers(min_value=0, max_value=2 * BATCH_BYTES), max_size=200)


@given(sizes)
def test_batches_hold_every_file_once_in_order_and_keep_their_limits(each_size):
    files = [FoundFile(Path(str(n)), str(n), size_bytes) for n, size_bytes in enumerate(each_size)]
    made = list(batches(files))
    assert [file for batch in made for file in batch] == files
    for batch in made:
        assert 0 < len(batch) <= BATCH_FILES
        assert len(batch) == 1 or sum(file.size_bytes for file in batch) <= BATCH_BYTES


def test_a_link_in_a_circle_is_one_unreadable_file_and_the_rest_is_found(folder):
    (folder / "circle").symlink_to(folder / "circle")
    assert skipped([folder])["circle"].code == "unreadable_file"
    assert len(keys([folder])) == 3
