"""Policies as tables, to and from OpenSpiel, so that what agents do can be valued exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rolecraft.errors import UserError
from rolecraft.worlds._decision import Act, View
from rolecraft.worlds._episode import Episode
from rolecraft.worlds._world import World
from rolecraft.worlds.adapters._foreign import need
from rolecraft.worlds.adapters._open_spiel import OpenSpielWorld

PolicyTable = Mapping[str, Mapping[str, float]]
"""Observation to the probability of each action. As in OpenSpiel's tables, no two players see the same text at a turn
of their own."""


class TablePolicy:
    """Acts by a table."""

    def __init__(self, table: PolicyTable) -> None:
        """Bind a table.

        Raises:
            UserError: If probabilities of a row are negative or do not add up to 1.
        """
        for text, row in table.items():
            if min(row.values(), default=-1) < 0 or abs(sum(row.values()) - 1) > 1e-6:
                raise UserError(f"table, row {text!r}: expected probabilities that add up to 1, got {dict(row)}.")
        self._table = table

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view.

        Raises:
            UserError: If the table has no row for an observation.
        """
        return [Act(self._draw(view)) for view in views]

    def _draw(self, view: View) -> str:
        row = self._table.get(view.observation)
        if row is None:
            raise UserError(f"the table has no row for what {view.agent} sees: {view.observation!r}.")
        place, names = view.rng().random(), list(row)
        total = 0.0
        for name in names:
            total += row[name]
            if place < total:
                return name
        return max(names, key=lambda name: row[name])


def table_of_policy(world: OpenSpielWorld, policy: Any) -> dict[str, dict[str, float]]:
    """Return the table of an OpenSpiel policy over the whole game, which must be small.

    Args:
        world: Of the game.
        policy: Anything with `action_probabilities(state, player)`.
    """
    table: dict[str, dict[str, float]] = {}
    for position, player in _decisions(world):
        text = world.text_of(position, player)
        if text not in table:
            chances = policy.action_probabilities(position, player)
            named = world.named(position, player)
            table[text] = {name: float(chances.get(action, 0.0)) for name, action in named.items()}
    return table


def table_of_episodes(episodes: Iterable[Episode]) -> dict[str, dict[str, float]]:
    """Return how often each action was taken at each observation; random fallbacks do not count."""
    counts: dict[str, Counter[str]] = {}
    for episode in episodes:
        for turn in episode.turns:
            if not turn.fallback:
                counts.setdefault(turn.observation, Counter(dict.fromkeys(turn.legal or (), 0)))[turn.action] += 1
    return {text: {name: count / row.total() for name, count in row.items()} for text, row in counts.items()}


def policy_of_table(world: OpenSpielWorld, table: PolicyTable, unseen: Literal["refuse", "uniform"] = "refuse") -> Any:
    """Return OpenSpiel's `TabularPolicy` of a table, for its own algorithms.

    Args:
        world: Of the game, which must be small and have information states.
        table: A row for every information state.
        unseen: What holds where there is no row.

    Raises:
        UserError: If a row is missing and `unseen` is "refuse", or it gives a probability to what is not legal.

    Example:
        ```python
        policy = policy_of_table(world, table)
        exploitability.nash_conv(world.game, policy)
        ```
    """
    if not world.game.get_type().provides_information_state_string:
        raise UserError(f"{world.game}: it has no information states, which a tabular policy is made of.")
    policy = need("open_spiel.python.policy", "open_spiel").TabularPolicy(world.game)
    for position, player in _decisions(world):
        text = world.text_of(position, player)
        row, named = table.get(text), world.named(position, player)
        if row is None:
            if unseen == "refuse":
                raise UserError(f"the table has no row for {text!r}; add it, or pass unseen='uniform'.")
            row = dict.fromkeys(named, 1 / len(named))
        strange = [name for name, chance in row.items() if chance and name not in named]
        if strange:
            raise UserError(f"table, row {text!r}: {strange[0]!r} is not legal there ({', '.join(named)}).")
        entry = policy.policy_for_key(position.information_state_string(player))
        entry[:] = 0.0
        for name, action in named.items():
            entry[action] = row.get(name, 0.0)
    return policy


def decisions(world: World) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return every decision of a game, which must be small: what is seen, to who sees it and what may be done.

    Raises:
        UserError: If the world is no game of OpenSpiel.
    """
    if not isinstance(world, OpenSpielWorld):
        raise UserError(f"{world.name}: only games of OpenSpiel can be listed whole.")
    return {
        world.text_of(position, player): (world.agents[player], tuple(world.named(position, player)))
        for position, player in _decisions(world)
    }


def _decisions(world: OpenSpielWorld) -> Iterable[tuple[Any, int]]:
    """Return every position of the game with each player that moves there."""
    states = need("open_spiel.python.algorithms.get_all_states", "open_spiel").get_all_states(
        world.game, depth_limit=-1, include_terminals=False, include_chance_states=False, to_string=_history
    )
    return [(position, player) for position in states.values() for player in world.movers(position)]


def _history(position: Any) -> str:
    return str(position.history())
