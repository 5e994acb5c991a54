"""What the tests of several systems share."""

import numpy as np
import pytest


@pytest.fixture
def hashed_embedder(monkeypatch):
    """Put an encoder without meaning, by the length of a text, in the place of MiniLM."""

    class Encoder:
        @classmethod
        def load(cls):
            return cls()

        def encode(self, texts):
            return np.stack([np.random.default_rng(len(text)).standard_normal(8) for text in texts])

    monkeypatch.setattr("rolecraft.models.Embedder", Encoder, raising=False)
