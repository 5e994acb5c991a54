"""The training studies that the README names begin, and the first iterations can be done."""

from pathlib import Path

import pytest

from rolecraft.learning.trainer import make_trainer, read_train_study

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "train").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_trained(path):
    pytest.importorskip("pyspiel")
    trainer = make_trainer(read_train_study(path))
    figures = [trainer.step().figures for _ in range(2)]
    assert all(row["rows"] > 0 and row["grad_norm"] > 0 for row in figures)


def test_there_are_examples():
    assert EXAMPLES
