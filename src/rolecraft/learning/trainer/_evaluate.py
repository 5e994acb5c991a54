"""How good a policy under training is: exactly where the game allows it, else against a random opponent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.learning.trainer._rollouts import Start, outcomes, play_starts
from rolecraft.learning.trainer._trainer import Trainer
from rolecraft.worlds import Act, View, World

Measure = Callable[[Trainer, int, int], dict[str, float]]
"""From a trainer, a number of episodes and a seed to figures."""


class RandomPolicy:
    """Takes every legal action with the same probability."""

    def act(self, views: Sequence[View]) -> list[Act]:
        """Answer every view.

        Raises:
            UserError: If actions are free text.
        """
        acts = []
        for view in views:
            if not view.legal:
                raise UserError(f"{view.agent}: free text has no random action to compare with.")
            acts.append(Act(view.legal[int(view.rng().integers(len(view.legal)))]))
        return acts


def policy_table(trainer: Trainer, world: World) -> dict[str, dict[str, float]]:
    """Return the probability of every action at every decision of a small OpenSpiel game.

    Raises:
        UserError: If the world is no OpenSpiel game.
    """
    from rolecraft.worlds.adapters import decisions

    found: dict[str, dict[str, float]] = {}
    for text, (agent, legal) in decisions(world).items():
        policy = trainer.policies[trainer.route(agent, None)]
        prompt = policy.encode(agent, None, text)
        found[text] = policy.odds([prompt], [policy.options(legal)])[0]
    return found


def exploitability(trainer: Trainer, episodes: int, seed: int) -> dict[str, float]:
    """Return how much a best response gains on the policies, on average over the seats (OpenSpiel); 0 at equilibrium.

    Also the game's value for the first seat when the policies play each other. Exact: no episode is played.

    Raises:
        UserError: If a world is no small two-player zero-sum game of OpenSpiel.
    """
    from rolecraft.worlds.adapters import policy_of_table
    from rolecraft.worlds.adapters._foreign import need

    measure = need("open_spiel.python.algorithms.exploitability", "open_spiel")
    value = need("open_spiel.python.algorithms.expected_game_score", "open_spiel")
    figures = {}
    for place, make in enumerate(trainer.worlds):
        world = make()
        game = getattr(world, "game", None)
        if game is None:
            raise UserError(f"exploitability: {world.name} is no game of OpenSpiel; its exact value is not known.")
        policy = policy_of_table(world, policy_table(trainer, world))  # type: ignore[arg-type]
        label = "" if len(trainer.worlds) == 1 else f"/{place}"
        figures[f"exploitability{label}"] = float(measure.exploitability(game, policy))
        played = value.policy_value(game.new_initial_state(), [policy] * game.num_players())
        figures[f"value{label}"] = float(played[0])
    return figures


def against_random(trainer: Trainer, episodes: int, seed: int) -> dict[str, float]:
    """Return the mean reward of each agent's policy while all others act at random."""
    figures: dict[str, float] = {}
    random = RandomPolicy()
    for game, make in enumerate(trainer.worlds):
        agents = make().agents
        for agent in agents:
            starts = [Start(game, n, derive_seed(seed, game, agent, n), 0) for n in range(episodes)]

            def others(_: Start, seat: str = agent, all_agents: Sequence[str] = agents) -> Mapping[str, RandomPolicy]:
                return {each: random for each in all_agents if each != seat}

            played = play_starts(trainer.worlds, starts, trainer.seats, trainer.route, trainer.config.limit, others)
            label = agent if len(trainer.worlds) == 1 else f"{agent}/{game}"
            earned = [outcomes(episode, trainer.config.illegal)[agent] for episode in played]
            figures[f"against_random/{label}"] = float(np.mean(earned))
    return figures


EVALUATIONS: Mapping[str, Measure] = {"exploitability": exploitability, "random": against_random}
"""Measures by the name that study files use."""
