"""The training studies that the README names begin, and the first iterations can be done."""

from pathlib import Path

import pytest

from rolecraft.learning.trainer import make_trainer, read_train_study
from rolecraft.testing import tiny_model

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "train").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_trained(path, monkeypatch):
    """A language model is a tiny random one here."""
    monkeypatch.setattr("rolecraft.models._load.load_local", lambda spec, **options: tiny_model(2))
    try_out(path)


@pytest.mark.slow
def test_an_example_can_be_trained_on_the_embedded_model():
    try_out(next(path for path in EXAMPLES if path.stem == "lora"))


def try_out(path):
    pytest.importorskip("pyspiel")
    trainer = make_trainer(read_train_study(path))
    for _ in range(2):
        figures = trainer.step().figures
        norms = [value for name, value in figures.items() if name.endswith("grad_norm")]
        assert figures["rows"] > 0
        assert norms
        assert min(norms) > 0


def test_there_are_examples():
    assert EXAMPLES
