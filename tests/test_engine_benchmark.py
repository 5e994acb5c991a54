"""The engine's benchmark: its scene, its checks and its entries, without peers and without SmolLM2."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rolecraft.agents import ScriptedPolicy
from rolecraft.testing import tiny_model
from rolecraft.worlds import play, replay

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def engine() -> ModuleType:
    spec = importlib.util.spec_from_file_location("engine_benchmark", FOLDER / "engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


@pytest.mark.parametrize(
    ("heard", "said"), [("", "line 1"), ("a: line 9\nb: line 12.", "line 13"), ("line x", "line 1")]
)
def test_the_script_counts_on_from_the_last_line(engine: ModuleType, heard: str, said: str) -> None:
    assert engine.line_after(heard) == said


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("together", "last"), [(True, "line 4"), (False, "line 12")])
def test_everybody_hears_the_line_before(engine: ModuleType, together: bool, last: str, whole: bool) -> None:
    scene = engine.TalkingScene(3, 12, together, whole)
    policy = ScriptedPolicy(lambda view: engine.line_after(view.observation))
    episode = play(scene, dict.fromkeys(scene.agents, policy), 1)
    assert [turn.agent for turn in episode.turns] == list(scene.agents) * 4
    assert episode.turns[-1].action == last
    shown = [line[:9] for line in episode.turns[3].observation.split("\n")]
    assert shown == (["[agent-0]", "[agent-1]", "[agent-2]"] if whole and together else ["[agent-2]"])
    assert engine.ours(3, 12, together)() == last
    replay(scene, episode)


def test_the_digest_of_the_log_tells_all_lines_apart(engine: ModuleType) -> None:
    hashes = set()
    for first in ("a", "b"):
        scene = engine.TalkingScene(1, 3, True)
        scene.reset(0)
        for text in (first, "same", "same"):
            scene.act({"agent-0": text})
        hashes.add(scene.state_hash())
        assert "same" in scene.state()["last"]
    assert len(hashes) == 2


def test_another_scene_is_not_timed(engine: ModuleType) -> None:
    runs = {"ours": (1, lambda: "line 2"), "peer": (1, lambda: "Bob: line 2")}
    assert {name: len(speed) for name, speed in engine.steps_per_second(runs, "line 2", 3).items()} == {
        "ours": 3,
        "peer": 3,
    }
    with pytest.raises(AssertionError, match="peer ended with 'silence'"):
        engine.steps_per_second({**runs, "peer": (1, lambda: "silence")}, "line 2", 3)


def test_an_entry_sums_the_rounds_up(engine: ModuleType) -> None:
    found = engine.entry("name", "unit", [10.0, 30.0, 20.0], [1.0, 2.0, 4.0], "how")
    assert (found["ours"], found["peer"], found["ratio"], found["spread"]) == (20.0, 2.0, 10.0, [5.0, 15.0])


def test_generation_in_one_batch_speaks_as_one_at_a_time(engine: ModuleType) -> None:
    found = engine.batched_generation(tiny_model(), 4, 1, 3)
    keys = importlib.util.spec_from_file_location("run_benchmarks", FOLDER / "run.py")
    module = importlib.util.module_from_spec(keys)
    keys.loader.exec_module(module)
    assert set(found) == set(module.KEYS)
    assert found["ours"] > 0
    assert "4 agents" in found["name"]
    low, high = [int(word) for word in found["conditions"].split("(")[1].split(" tokens")[0].split(" to ")]
    assert 0 < low == high <= 4 * 2 * 3


def test_peers_that_are_not_there_are_left_out(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Absent:
        name = "Absent"

        def missing(self) -> str:
            return "no module"

    monkeypatch.setattr(engine._engine_peers, "PEERS", (Absent(),))
    assert list(engine.peers((10,), 1)) == []
    assert "left out: Absent (no module)" in capsys.readouterr().err
