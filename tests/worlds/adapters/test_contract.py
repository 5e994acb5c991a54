"""Every adapter keeps the contract of a world; each is tried on its real package where that is installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rolecraft.errors import MissingDependencyError, UserError
from rolecraft.testing import check_world
from rolecraft.worlds import Avalon, ParallelWorldEnv, TrustGame, World, WorldEnv, make_world, text_of
from rolecraft.worlds.adapters import GymnasiumWorld, JaxMarlWorld, PettingZooWorld
from tests.worlds.adapters.conftest import Countdown, Doors, Guess, Musical, reader, saying
from tests.worlds.conftest import Pennies


def ours(env: Any) -> PettingZooWorld:
    """Return a world of ours that has gone through PettingZoo and back."""
    return PettingZooWorld(env, describe=lambda agent, seen: text_of(seen))


MAKERS: dict[str, tuple[str, Callable[[], World], Any]] = {
    "kuhn": ("pyspiel", lambda: make_world("open-spiel", {"game": "kuhn_poker"}), None),
    "kuhn of three": ("pyspiel", lambda: make_world("open-spiel", {"game": "kuhn_poker(players=3)"}), None),
    "leduc": ("pyspiel", lambda: make_world("open-spiel", {"game": "leduc_poker", "rules": "Leduc."}), None),
    "tic-tac-toe": ("pyspiel", lambda: make_world("open-spiel", {"game": "tic_tac_toe"}), None),
    "goofspiel": ("pyspiel", lambda: make_world("open-spiel", {"game": "goofspiel", "params": {"num_cards": 4}}), None),
    "rock": ("pyspiel", lambda: make_world("open-spiel", {"game": "matrix_rps"}), None),
    "backgammon": ("pyspiel", lambda: make_world("open-spiel", {"game": "backgammon"}), None),
    "dice": ("pyspiel", lambda: make_world("open-spiel", {"game": "liars_dice", "numbered": True}), None),
    "oshi-zumo": ("pyspiel", lambda: make_world("open-spiel", {"game": "oshi_zumo", "params": {"coins": 9}}), None),
    "coop": ("pyspiel", lambda: make_world("open-spiel", {"game": "coop_box_pushing"}), None),
    "text kuhn": ("textarena", lambda: make_world("text-arena", {"env": "KuhnPoker-v0"}), reader("actions are:")),
    "text tic-tac-toe": ("textarena", lambda: make_world("text-arena", {"env": "TicTacToe-v0"}), reader("Moves:")),
    "text raw": ("textarena", lambda: make_world("text-arena", {"env": "TicTacToe-v0-raw"}), reader("Moves:")),
    "text silence": ("textarena", lambda: make_world("text-arena", {"env": "Nim-v0"}), None),
    "text dilemma": (
        "textarena", lambda: make_world("text-arena", {"env": "IteratedPrisonersDilemma-v0"}),
        saying("[Cooperate]", "[Defect]")
    ),
    "text of three": (
        "textarena", lambda: make_world("text-arena", {"env": "ThreePlayerIPD-v0", "players": 3}),
        saying("[0 defect] [1 cooperate]", "Trust me.")
    ),
    "lake": ("gymnasium", lambda: make_world("gymnasium", {"env": "FrozenLake-v1"}), None),
    "taxi": ("gymnasium", lambda: make_world("gymnasium", {"env": "Taxi-v4", "pictured": True}), None),
    "guess": ("gymnasium", lambda: GymnasiumWorld(Guess()), None),
    "guess by text": ("gymnasium", lambda: GymnasiumWorld(Guess(text=True)), None),
    "rps": ("pygame", lambda: make_world("pettingzoo", {"env": "classic/rps_v2"}), None),
    "connect four": ("pygame", lambda: make_world("pettingzoo", {"env": "classic/connect_four_v3"}), None),
    "countdown": ("pettingzoo", lambda: PettingZooWorld(Countdown()), None),
    "musical": ("pettingzoo", lambda: PettingZooWorld(Musical()), None),
    "avalon and back": ("pettingzoo", lambda: ours(WorldEnv(Avalon())), None),
    "pennies and back": ("pettingzoo", lambda: ours(ParallelWorldEnv(Pennies())), None),
    "trust and back": ("pettingzoo", lambda: ours(ParallelWorldEnv(TrustGame())), None),
    "doors": ("jax", lambda: JaxMarlWorld(Doors(), compiled=False), None),
    "riddle": ("jaxmarl", lambda: make_world("jaxmarl", {"env": "switch_riddle"}), None),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_the_contract_holds(name: str) -> None:
    package, make, policy = MAKERS[name]
    pytest.importorskip(package)
    episodes = check_world(make, policy=policy, seeds=(1, 2), limit=60)
    assert all(episode.turns for episode in episodes)


INSTALLS = {
    "open-spiel": ({"game": "kuhn_poker"}, "pyspiel", "pip install 'open_spiel'"),
    "text-arena": ({"env": "KuhnPoker-v0"}, "textarena", "pip install 'TextArena'"),
    "gymnasium": ({"env": "FrozenLake-v1"}, "gymnasium", "pip install 'gymnasium'"),
    "pettingzoo": ({"env": "classic/rps_v2"}, "pettingzoo", "pip install 'pettingzoo'"),
    "jaxmarl": ({"env": "coin_game"}, "jax", "pip install 'jax'"),
}


@pytest.mark.parametrize("name", INSTALLS)
def test_without_the_package_the_error_holds_the_line_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, module, line = INSTALLS[name]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=line):
        make_world(name, options)


@pytest.mark.parametrize("name", INSTALLS)
def test_a_missing_or_unknown_option_is_named(name: str) -> None:
    option = next(iter(INSTALLS[name][0]))
    with pytest.raises(UserError, match=f"world '{name}' needs the option '{option}'"):
        make_world(name)
    with pytest.raises(UserError, match="no option 'colour'"):
        make_world(name, {option: "x", "colour": "red"})


def test_packages_are_imported_only_when_a_world_of_theirs_is_made() -> None:
    code = (
        "import sys, rolecraft.worlds, rolecraft.worlds.adapters\n"
        "print([name for name in ('pyspiel', 'textarena', 'gymnasium', 'pettingzoo', 'jax') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
