"""The multipart form, taken apart in pieces of any size; on a real blob store."""

from __future__ import annotations

import errno
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api_gateway.uploads import MAX_FILES, UploadForm
from pipeline.errors import InvalidInputError, SourcemillError, TooLargeError
from pipeline.models import Upload
from pipeline.stores.blob import ObstoreBlobStore

BOUNDARY = "x7Kq"
KIND = f"multipart/form-data; boundary={BOUNDARY}"
LIMIT = 1000


def part(name: str, value: bytes, filename: str | None = None) -> bytes:
    file = "" if filename is None else f'; filename="{filename}"'
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def body(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


@pytest.fixture
def blobs(tmp_path: Path):
    store = ObstoreBlobStore(f"file://{tmp_path / 'blobs'}")
    yield store
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "uploads"
    made.mkdir()
    return made


@pytest.fixture
def form(blobs, folder) -> UploadForm:
    return UploadForm(KIND, blobs, folder, LIMIT)


def stored(blobs, area):
    return blobs.list(area)


def code_of(outcome) -> str:
    assert isinstance(outcome, SourcemillError)
    return outcome.code


CONTENTS = st.lists(st.binary(min_size=1, max_size=300) | st.just(f"\r\n--{BOUNDARY}".encode()[:-1]), max_size=4)


@settings(max_examples=60, deadline=None)
@given(contents=CONTENTS.filter(bool), cuts=st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_pieces_of_any_size_give_the_same_files(contents, cuts):
    whole = body(*(part("files", content, f"{n}.txt") for n, content in enumerate(contents)))
    with TemporaryDirectory() as place:
        blobs = ObstoreBlobStore(f"file://{place}/blobs")
        form, at, turn = UploadForm(KIND, blobs, Path(place), LIMIT), 0, 0
        while at < len(whole):
            size = cuts[turn % len(cuts)]
            form.write(whole[at : at + size])
            at, turn = at + size, turn + 1
        uploads = form.finish()
        assert [blobs.get(upload.area, upload.blob_id) for upload in uploads] == contents
        assert [(upload.key, upload.size_bytes) for upload in uploads] == [
            (f"{n}.txt", len(content)) for n, content in enumerate(contents)
        ]
        assert list(Path(place).glob("upload-*")) == []


def test_a_bad_file_leaves_the_others_alone(form, blobs, folder):
    form.write(
        body(
            part("files", b"one", "a.txt"),
            part("files", b"", "empty.txt"),
            part("files", b"x" * (LIMIT + 1), "big.txt"),
            part("files", b"name", "bad\x01name"),
            part("files", b"y" * LIMIT, "just.txt"),
        )
    )
    first, empty, big, named, last = form.finish()
    assert isinstance(first, Upload)
    assert isinstance(last, Upload)
    assert [code_of(each) for each in (empty, big, named)] == ["empty_file", "too_large", "bad_key"]
    assert "more than 1000 bytes, the limit of SOURCEMILL_MAX_FILE_BYTES" in big.message
    assert blobs.get(last.area, last.blob_id) == b"y" * LIMIT
    assert list(folder.iterdir()) == []


def test_a_file_over_the_limit_is_not_kept_on_disk_while_it_goes_on_arriving(form, folder):
    form.write(part("files", b"x" * (LIMIT + 1), "big.txt")[:-2])
    form.write(b"x" * 10_000)
    assert list(folder.iterdir()) == []


def test_keys_and_titles_belong_to_the_files_in_order(form):
    form.write(
        body(
            part("keys", b"k/1"),
            part("files", b"one", "a.txt"),
            part("keys", b""),
            part("titles", b"First"),
            part("files", b"two", "b.txt"),
            part("titles", b""),
        )
    )
    assert [(upload.key, upload.title) for upload in form.finish()] == [("k/1", "First"), ("b.txt", None)]


def test_a_key_may_be_any_language(form):
    form.write(body(part("files", b"one", "员工手册 ü.txt")))
    assert form.finish()[0].key == "员工手册 ü.txt"


@pytest.mark.parametrize("key", ["a\nb", "a\x00b", "a\x7fb", "a\x85b", "a\u2028b", "k" * 1025])
def test_a_key_with_control_characters_or_without_end_is_refused(form, key):
    form.write(body(part("files", b"one", "a.txt"), part("keys", key.encode())))
    assert code_of(form.finish()[0]) == "bad_key"


def test_a_file_without_any_name_is_refused(form):
    form.write(body(part("files", b"one", "")))
    assert code_of(form.finish()[0]) == "bad_key"


def test_fewer_keys_than_files_is_an_error_of_the_form(form):
    form.write(body(part("files", b"1", "a"), part("files", b"2", "b"), part("keys", b"k")))
    with pytest.raises(InvalidInputError, match="2 files but 1 keys"):
        form.finish()


def test_discarding_removes_all_but_what_is_kept(form, blobs):
    form.write(body(part("files", b"1", "a"), part("files", b"2", "b")))
    kept, gone = form.finish()
    form.discard(keep={kept.area})
    assert stored(blobs, kept.area) == [kept.blob_id]
    assert stored(blobs, gone.area) == []


def test_discarding_in_the_middle_of_a_file_leaves_nothing(form, blobs, folder):
    form.write(part("files", b"1", "a") + part("files", b"2222", "b")[:-3])
    form.discard()
    assert list(folder.iterdir()) == []
    assert stored(blobs, form.files[0].area) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        part("files", b"cut off", "a.txt"),
        b"--" + BOUNDARY.encode() + b"\r\nno colon\r\n\r\nx\r\n",
        body(part("keys", b"k")),
        body(part("other", b"k")),
        body(b"--" + BOUNDARY.encode() + b"\r\nX: y\r\n\r\nno disposition\r\n"),
        body(part("keys", b"k" * 5000)),
    ],
)
def test_a_form_that_makes_no_sense_is_an_error_of_the_form(form, data):
    with pytest.raises((InvalidInputError, TooLargeError)):
        (form.write(data), form.finish())
    form.discard()


@pytest.mark.parametrize("kind", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary="])
def test_another_content_type_is_named_as_the_reason(blobs, folder, kind):
    with pytest.raises(InvalidInputError) as caught:
        UploadForm(kind, blobs, folder, LIMIT)
    assert caught.value.code == "unsupported_media_type"


def test_more_files_than_a_request_may_have_are_refused(form):
    with pytest.raises(TooLargeError, match=str(MAX_FILES)):
        form.write(body(*(part("files", b"", "a") for _ in range(MAX_FILES + 1))))


def test_a_full_disk_is_the_files_own_error(form, monkeypatch):
    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("api_gateway.uploads.NamedTemporaryFile", full)
    form.write(body(part("files", b"one", "a.txt")))
    assert code_of(form.finish()[0]) == "disk_full"


def test_a_boundary_of_thousands_of_characters_is_the_callers_fault(blobs, folder):
    with pytest.raises(InvalidInputError):
        UploadForm(f"multipart/form-data; boundary={'x' * 5000}", blobs, folder, LIMIT)
