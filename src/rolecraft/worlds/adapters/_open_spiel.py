"""OpenSpiel games as worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np

from rolecraft.errors import UserError
from rolecraft.worlds.adapters._foreign import ForeignWorld, in_order, need

See = Literal["information", "observation"]
"""What is shown: all that a player knows, the moves so far included; or the position as it sees it now."""

_MOST_WORDS = 20_000
"""Most distinct actions of which words are asked for beforehand."""
_NO_WORD = "Action(id="
"""How OpenSpiel calls an action that has no name without a position."""


class OpenSpielWorld(ForeignWorld):
    """Any game of OpenSpiel.

    Agents are `player_0`, `player_1` and so on. Chance is drawn by the world itself, from its seed. Everyone sees its
    information state string; in games that have none, its observation string. `see="observation"` shows the latter: a
    board in place of the moves that led to it. At simultaneous nodes all act at once. Rewards are OpenSpiel's returns.

    Actions are called as OpenSpiel calls them. Many games name them only in a position; then `legal` holds the names
    and `actions` is None, as if they were free text. `numbered` gives such games a fixed list, which PettingZoo needs:
    the numbers of the actions, with the observation saying what they mean unless `legend` is off.

    State: see `ForeignWorld`; with the game's own history beside it, chance included.
    """

    name = "open-spiel"

    def __init__(
        self,
        game: Any,
        *,
        params: Mapping[str, Any] | None = None,
        numbered: bool = False,
        rules: str = "",
        see: See = "information",
        legend: bool = True,
    ) -> None:
        """Load a game.

        Args:
            game: A name such as `kuhn_poker` or `kuhn_poker(players=3)`, or a game that is loaded already.
            params: The game's parameters.
            numbered: Actions are numbers.
            rules: Text that is put before every observation.
            see: What is shown.
            legend: Say what the numbers of actions mean, where they are numbers.

        Raises:
            MissingDependencyError: If OpenSpiel is not installed.
            UserError: If there is no such game, its chance cannot be drawn from outside, it is a mean-field game, or it
                has no observation to see.
        """
        self._spiel = need("pyspiel", "open_spiel")
        self.game = self._load(game, params or {}) if isinstance(game, str) else game
        super().__init__(str(self.game))
        kind = self.game.get_type()
        if kind.chance_mode == self._spiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
            raise UserError(f"{self._label}: it draws its chance itself, so that no seed of ours could replay it.")
        if kind.dynamics == self._spiel.GameType.Dynamics.MEAN_FIELD:
            raise UserError(f"{self._label}: in a mean-field game nobody is a single agent.")
        self._perfect = kind.information == self._spiel.GameType.Information.PERFECT_INFORMATION
        self._informed, self._observed = kind.provides_information_state_string, kind.provides_observation_string
        if see not in get_args(See):
            raise UserError(f"{self._label}: see must be 'information' or 'observation', got {see!r}.")
        if see == "observation" and not self._observed:
            raise UserError(f"{self._label}: it has no observation strings; use see='information'.")
        self._informed = self._informed and see == "information"
        self._legend = legend
        self.agents = tuple(f"player_{player}" for player in range(self.game.num_players()))
        self._players = {agent: player for player, agent in enumerate(self.agents)}
        self._numbered, self._rules = numbered, rules
        self._words = None if numbered else self._fixed_words()
        if numbered:
            self.actions = tuple(str(action) for action in range(self.game.num_distinct_actions()))
        elif self._words:
            self.actions = in_order(self._words)

    def _load(self, game: str, params: Mapping[str, Any]) -> Any:
        try:
            return self._spiel.load_game(game, dict(params)) if params else self._spiel.load_game(game)
        except self._spiel.SpielError as error:
            raise UserError(f"OpenSpiel cannot load {game!r}: {str(error).splitlines()[0]}") from None

    def _fixed_words(self) -> list[list[str]] | None:
        """Return each player's names of all actions, where the game has them without a position."""
        count = self.game.num_distinct_actions()
        if count > _MOST_WORDS:
            return None
        try:
            words = [
                [self.game.action_to_string(player, action) for action in range(count)]
                for player in range(self.game.num_players())
            ]
        except self._spiel.SpielError:
            return None
        known = all(len(set(own)) == count and not any(word.startswith(_NO_WORD) for word in own) for own in words)
        return words if known else None

    def _start(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.position = self.game.new_initial_state()
        try:
            self._draw()
        except self._spiel.SpielError as error:
            raise UserError(f"{self._label} cannot be played: {str(error).splitlines()[0]}") from None

    def _draw(self) -> None:
        """Let chance move while it is its turn, then note what may be done."""
        position = self.position
        while position.is_chance_node():
            outcomes, chances = zip(*position.chance_outcomes(), strict=True)
            weights = np.array(chances)
            position.apply_action(int(outcomes[self._rng.choice(len(outcomes), p=weights / weights.sum())]))
        self._legal = {self.agents[player]: self.named(position, player) for player in self.movers(position)}

    def movers(self, position: Any) -> tuple[int, ...]:
        """Return the players that move in a position."""
        if position.is_terminal() or position.is_chance_node():
            return ()
        if position.is_simultaneous_node():
            return tuple(player for player in self._players.values() if position.legal_actions(player))
        return (position.current_player(),)

    def named(self, position: Any, player: int) -> dict[str, int]:
        """Return the actions of a player that moves in a position, by name.

        Raises:
            UserError: If two of them have one name.
        """
        actions = position.legal_actions(player)
        if self._numbered:
            return {str(action): action for action in actions}
        words = self._words[player] if self._words else None
        named = {words[action] if words else position.action_to_string(player, action): action for action in actions}
        if len(named) < len(actions):
            raise UserError(f"{self._label}: several actions have one name; pass numbered=True.")
        return named

    def text_of(self, position: Any, player: int) -> str:
        """Return what a player sees in a position."""
        parts = [self._rules, self._seen(position, player)]
        if self._numbered and self._legend and player in self.movers(position):
            legal = position.legal_actions(player)
            parts += [f"{action}: {position.action_to_string(player, action)}" for action in legal]
        return "\n".join(part for part in parts if part)

    def _seen(self, position: Any, player: int) -> str:
        try:
            if self._informed:
                return str(position.information_state_string(player))
            if self._observed:
                return str(position.observation_string(player))
        except self._spiel.SpielError:
            if not position.is_terminal():
                raise
            return "The game is over."
        if not self._perfect:
            raise UserError(f"{self._label}: it has no strings that tell a player what it sees.")
        return str(position)

    @property
    def acting(self) -> tuple[str, ...]:
        """Whoever moves."""
        return tuple(self._legal)

    def observe(self, agent: str) -> str:
        """Return the rules and what the agent knows."""
        return self.text_of(self.position, self._players[agent])

    def legal(self, agent: str) -> tuple[str, ...]:
        """Return the agent's moves, in the game's order."""
        return tuple(self._legal.get(agent, ()))

    def state(self) -> Mapping[str, Any]:
        """Return the base's state, and every move, those of chance too."""
        return {**super().state(), "moves": [int(action) for action in self.position.history()]}

    def rewards(self) -> Mapping[str, float]:
        """Return the game's returns so far."""
        return dict(zip(self.agents, map(float, self.position.returns()), strict=True))

    def outcome(self) -> Mapping[str, Any]:
        """Return who earned the most."""
        rewards = self.rewards()
        best = max(rewards.values())
        return {"best": [agent for agent, reward in rewards.items() if reward == best]}

    def _step(self, actions: Mapping[str, str]) -> None:
        chosen = {self._players[agent]: self._legal[agent][action] for agent, action in actions.items()}
        if self.position.is_simultaneous_node():
            self.position.apply_actions([chosen.get(player, 0) for player in range(len(self.agents))])
        else:
            self.position.apply_action(next(iter(chosen.values())))
        self._draw()
