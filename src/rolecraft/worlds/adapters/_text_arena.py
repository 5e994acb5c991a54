"""TextArena environments as worlds."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds.adapters._foreign import ForeignWorld, need

Invalid = Literal["refuse", "pass"]
"""What becomes of an invalid move: refused like any illegal action; or passed on, for TextArena's own rule."""


class TextArenaWorld(ForeignWorld):
    """A text game of TextArena for one or more players.

    Agents are `player_0` and so on. TextArena judges a move only when it is made, so every move is first tried on a
    copy. An invalid one is refused with TextArena's reason, and nothing has changed; `Rules.repairs` says how often the
    agent is asked again. The empty message, which stands for an agent that has used them up, always counts as made:
    TextArena takes it as an invalid move, of which it allows one before the game is lost. With `invalid="pass"` all
    moves go to TextArena as they are.

    TextArena draws from Python's and NumPy's global generators; the world lends them its own for each call, and gives
    the others back untouched. Each agent sees what the environment's own wrappers make of the messages to it. Rewards
    come at the end. Environments that ask a jury of served models are no use here: they answer each time otherwise.

    State: see `ForeignWorld`.
    """

    name = "text-arena"

    def __init__(
        self, env: str, *, players: int = 2, invalid: Invalid = "refuse", kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Make an environment.

        Args:
            env: An id that `textarena.make` knows, such as `KuhnPoker-v0`; `KuhnPoker-v0-raw` has no wrappers.
            players: How many play.
            invalid: What becomes of an invalid move.
            kwargs: Arguments of `textarena.make`.

        Raises:
            MissingDependencyError: If TextArena is not installed.
            UserError: If there is no such environment, it is not for that many, or `invalid` is unknown.
        """
        arena = need("textarena", "TextArena")
        super().__init__(env)
        if invalid not in get_args(Invalid):
            raise UserError(f"invalid must be 'refuse' or 'pass', got {invalid!r}.")
        if isinstance(players, bool) or not isinstance(players, int) or players < 1:
            raise UserError(f"players must be an integer of at least 1, got {players!r}.")
        self.agents = tuple(f"player_{player}" for player in range(players))
        self._invalid, self._admin = invalid, arena.ObservationType.GAME_ADMIN
        try:
            with _Chance(0).lent():
                self._fresh = arena.make(env, **(kwargs or {}))
        except (ValueError, TypeError, ImportError, LookupError, OSError, SyntaxError) as error:
            reason = next((line for line in str(error).splitlines() if line.strip("* ")), type(error).__name__)
            raise UserError(f"TextArena cannot make {env!r}: {reason.strip()}") from None
        self.reset(0)

    def _start(self, seed: int) -> None:
        env, chance = copy.deepcopy(self._fresh), _Chance(seed)
        try:
            with chance.lent():
                env.reset(num_players=len(self.agents), seed=seed)
        except (AssertionError, ValueError, LookupError) as error:
            raise UserError(f"{self._label} cannot start with {len(self.agents)} players: {error}") from None
        self._now = _Moment(env, chance, False, {agent: [] for agent in self.agents})
        self._tried: dict[str, _Moment | str] = {}
        self._look()

    @property
    def acting(self) -> tuple[str, ...]:
        """The player whose turn TextArena says it is."""
        return () if self._now.over else (self.agents[self._now.env.state.current_player_id],)

    def observe(self, agent: str) -> str:
        """Return what the environment has told the agent so far."""
        return self._texts[agent]

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return None: what is valid shows when it is tried."""
        return None if agent in self.acting else ()

    def check(self, agent: str, action: str) -> None:
        """Refuse what TextArena takes for an invalid move, unless it says nothing or all is passed on.

        Raises:
            IllegalActionError: With TextArena's reason.
        """
        super().check(agent, action)
        result = self._try(action)
        if isinstance(result, str) and action:
            raise IllegalActionError(f"{self.name}: {agent} may not do {action!r}: {result}")

    def rewards(self) -> Mapping[str, float]:
        """Return TextArena's rewards, which come at the end; 0 before."""
        paid = (self._now.env.state.rewards or {}) if self._now.over else {}
        return {agent: float(paid.get(player, 0.0)) for player, agent in enumerate(self.agents)}

    def outcome(self) -> Mapping[str, Any]:
        """Return TextArena's reason by agent, and who made an invalid move."""
        infos = self._now.env.state.game_info
        return {
            "reasons": {agent: str(infos[player].get("reason", "")) for player, agent in enumerate(self.agents)},
            "invalid": [agent for player, agent in enumerate(self.agents) if infos[player].get("invalid_move")],
        }

    def _step(self, actions: Mapping[str, str]) -> None:
        result = self._try(next(iter(actions.values())), keep=True)
        # Text on which the environment breaks is refused; only the empty message can come so far, as a turn wasted.
        if not isinstance(result, str):
            self._now = result
            self._look()
        self._tried = {}

    def _try(self, action: str, keep: bool = False) -> _Moment | str:
        """Make a move on a copy; return what comes of it, or why it may not be kept.

        Args:
            action: The move.
            keep: Keep an invalid move too.
        """
        known = self._tried.get(action)
        if known is None or (keep and isinstance(known, str)):
            self._tried[action] = known = self._made(action, keep or self._invalid == "pass")
        return known

    def _made(self, action: str, keep: bool) -> _Moment | str:
        moment = copy.deepcopy(self._now)
        before = _errors(moment.env.state)
        player = moment.env.state.current_player_id
        told = len(moment.env.state.observations[player])
        try:
            with moment.chance.lent():
                moment.over = bool(moment.env.step(action)[0])
        except Exception as error:  # whatever its parser fell over is the text's doing, not ours
            return f"the environment breaks on it ({type(error).__name__}: {error})."
        if keep or _errors(moment.env.state) <= before:
            return moment
        told_of = [text for _, text, kind in moment.env.state.observations[player][told:] if kind == self._admin]
        return str(told_of[-1] if told_of else moment.env.state.game_info[player].get("reason", "an invalid move."))

    def _look(self) -> None:
        """Read what everyone has been told, as the environment's wrappers put it."""
        env = self._now.env
        current, self._texts = env.state.current_player_id, {}
        for player, agent in enumerate(self.agents):
            env.state.current_player_id = player
            _, seen = env.get_observation()
            if not isinstance(seen, str):
                self._now.messages[agent] += [(sender, text) for sender, text, _ in seen]
                names = env.state.role_mapping
                seen = "\n".join(
                    f"[{names.get(sender, f'Player {sender}')}] {text}" for sender, text in self._now.messages[agent]
                )
            self._texts[agent] = seen.strip()
        env.state.current_player_id = current


class _Chance:
    """A stand-in for the global generators, of the world's own."""

    def __init__(self, seed: int) -> None:
        self._python = random.Random(seed).getstate()
        self._numpy: Any = np.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Put it in place of the global generators for a while, and keep how far it was drawn."""
        theirs = random.getstate(), np.random.get_state()  # noqa: NPY002
        random.setstate(self._python)
        np.random.set_state(self._numpy)  # noqa: NPY002
        try:
            yield
        finally:
            self._python, self._numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
            random.setstate(theirs[0])
            np.random.set_state(theirs[1])  # noqa: NPY002


@dataclass
class _Moment:
    """A game between two moves."""

    env: Any
    chance: _Chance
    over: bool
    messages: dict[str, list[tuple[int, str]]]
    """Told so far, where no wrapper keeps it."""


def _errors(state: Any) -> int:
    """Return how many invalid moves a game has on its books: allowed ones in a row, and ones that cost it."""
    costly = sum(bool(info.get("invalid_move")) for info in state.game_info.values())
    return 1000 * costly + int(getattr(state, "error_count", 0))
