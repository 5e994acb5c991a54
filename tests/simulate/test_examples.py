"""The study files that the README names can be played."""

from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.simulate import Simulation, read_episodes, read_study
from rolecraft.testing import ScriptedModel
from tests.simulate.conftest import EIGHT

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = [*sorted(FOLDER.glob("*.yaml")), FOLDER / "guard" / "trust.yaml"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_played_with_a_lock_of_ones_own(path, write_lock, tmp_path):
    model = ScriptedModel()
    study = read_study(path, write_lock(model.name, model.revision, EIGHT))
    # A scripted model has no residual stream, along which the drift watch reads.
    study = study.model_copy(update={"drift": None, "model": model.name})
    with Simulation.open(study, tmp_path / "run", model=model, quiet=True) as simulation:
        simulation.run()
    with RunStore.read(tmp_path / "run") as run:
        episodes = read_episodes(run)
    assert len(episodes) == study.episodes * len(study.arms)
    for episode in episodes.values():
        assert episode["ended"] == "over"
        assert set(episode["roles"].values()) <= set(EIGHT)
        if path.stem == "conversation":
            assert set(episode["roles"].values()) == set(EIGHT)


def test_there_are_examples():
    assert [path.stem for path in EXAMPLES] == ["conversation", "trust"]
