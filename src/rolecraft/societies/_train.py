"""Training societies of learners: many lanes at once, with checkpoints, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._jax import check_memory, loop, tree_bytes
from rolecraft.errors import UserError
from rolecraft.societies._game import Floats
from rolecraft.societies._mechanism import SocialMechanism
from rolecraft.societies._settings import Society
from rolecraft.societies._society import COOPERATE, DEFECT, Engine, Rules, State, Turn


def measures(state: State, later: State, turns: Turn, partners: Any) -> dict[str, Any]:
    """Return what is kept of one episode: sums and counts, and figures per agent."""
    n = len(partners)
    acted, good = turns.acted, turns.acted & (turns.action == COOPERATE)
    bad = turns.acted & (turns.action == DEFECT)
    owner = jax.nn.one_hot(turns.players, n)
    off = 1 - jnp.eye(n)

    def share(what: Any) -> Any:
        return jnp.einsum("...s,...sn->n", what.astype(float), owner)

    return {
        "acts": acted.sum(),
        "cooperations": good.sum(),
        "direct_punished": turns.direct.sum(),
        "direct_just": (turns.direct & bad).sum(),
        "third_punished": turns.by_third.sum(),
        "third_just": (turns.by_third & bad).sum(),
        "reward": turns.gained.sum(),
        "punisher_reward": turns.punisher_reward.sum(),
        "length": acted.any(-1).sum() / n,
        "chose_cooperator": (state.last[partners] == COOPERATE).mean(),
        "chose_just": (state.sanctioned[partners] == 1).mean(),
        "chose_unjust": (state.sanctioned[partners] == 2).mean(),
        "reputation": (later.views * off).sum() / off.sum(),
        "agent_acts": share(acted),
        "agent_cooperations": share(good),
        "agent_reward": share(turns.gained),
        "agent_reputation": (later.views * off).sum(0) / (n - 1),
        "agent_chosen": jax.nn.one_hot(partners, n).sum(0),
    }


@dataclass(frozen=True, eq=False)
class SocietyLog:
    """What some societies did, episode by episode."""

    figures: dict[str, np.ndarray[Any, Any]]
    """Per measure, shape (lanes, episodes), or (lanes, episodes, agents) for `agent_...`; counts are sums."""
    turns: Turn | None = None
    """Where they were asked for: every turn, leading shape (lanes, episodes, agents, rounds)."""

    @property
    def cooperation(self) -> Floats:
        """Share of acts that cooperate, shape (lanes, episodes)."""
        found: Floats = self.figures["cooperations"] / self.figures["acts"]
        return found

    def rate(self, top: str, bottom: str, episodes: slice = slice(None)) -> Floats:
        """Return a ratio of two sums over some episodes, shape (lanes,), NaN where there is nothing to divide by."""
        above, below = (self.figures[name][:, episodes].sum(1).astype(float) for name in (top, bottom))
        found: Floats = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
        return found


def train_society(
    society: Society,
    mechanisms: Sequence[SocialMechanism],
    seeds: Sequence[int],
    *,
    episodes: int,
    chunk: int = 100,
    folder: str | Path | None = None,
    keep_turns: bool = False,
) -> SocietyLog:
    """Let societies of learners live, one lane per mechanism and seed, all in one compiled program.

    Args:
        society: What all lanes share.
        mechanisms: One per lane.
        seeds: One per lane.
        episodes: In each of them every agent chooses and plays once.
        chunk: Episodes between two looks at the numbers, and two checkpoints.
        folder: Where checkpoints lie; see `rolecraft._jax.loop`.
        keep_turns: Keep every turn.

    Raises:
        UserError: If lanes do not match, a society is too small for its mechanism, or it would not fit into memory.
        Diverged: If a number stops being finite.
    """
    if len(mechanisms) != len(seeds) or not seeds:
        raise UserError(f"expected one mechanism and one seed per lane, got {len(mechanisms)} and {len(seeds)}.")
    for mechanism in dict.fromkeys(mechanisms):
        society.check(mechanism)
    engine, rules = Engine(society, episodes), Rules.of(mechanisms)

    def make(numbers: Any) -> State:
        return jax.vmap(lambda number: engine.init(jax.random.key(number)))(numbers)

    numbers = jnp.asarray([seed % 2**31 for seed in seeds], jnp.uint32)
    needed = tree_bytes(jax.eval_shape(make, numbers)._replace(key=numbers))
    check_memory(needed, f"{len(seeds)} societies of {society.agents} agents", "episodes or lanes")

    def update(state: State) -> tuple[State, dict[str, Any]]:
        later, (turns, partners) = jax.vmap(engine.episode)(rules, state)
        figures = jax.vmap(measures)(state, later, turns, partners)
        if keep_turns:
            figures |= {f"turn/{name}": value for name, value in turns._asdict().items()}
        return later, figures

    lanes = [f"{mechanism} {seed}" for mechanism, seed in zip(mechanisms, seeds, strict=True)]
    identity = {"society": repr(society), "lanes": lanes, "episodes": episodes, "turns": keep_turns}
    _, found = loop(update, make(numbers), updates=episodes, chunk=chunk, folder=folder, identity=identity)
    swapped = {name: value.swapaxes(0, 1) for name, value in found.items()}
    turns = Turn(*(swapped.pop(f"turn/{name}") for name in Turn._fields)) if keep_turns else None
    return SocietyLog(swapped, turns)
