"""Multi-agent training: environment steps per second, ours beside JaxMARL's baseline scripts and BenchMARL.

Two learners on MPE's simple_spread (three agents that share weights): VDN with a recurrent network (8 worlds, one
gradient step on 32 episodes for every 8), and independent PPO (16 worlds of 128 steps, 4 passes in 4 minibatches,
networks of two layers of 64). A step is a joint action of one world, its share of the learning included.

- JaxMARL's scripts train on the same environment. Their VDN's network has a layer less than ours and no dueling head;
  it is timed as published, and with those added. It does not learn in its first 32 updates (of 400; in a quick run, of
  60). Several seeds are trained at once by `vmap`, on either side.
- BenchMARL (PyTorch) trains on PettingZoo's MPE, of which JaxMARL's is a port, and on VMAS's simple_spread, another
  simulation whose worlds are vectorised. Its recurrent network has no layer before the recurrent one. It collects,
  learns and keeps its replay as its own experiment does.

What is timed is training alone, with fresh weights in every round: no evaluation, no logging, no checkpoints. A peer
that is not there is left out; see `_marl_peers.py`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import _marl_peers as peers
from _entries import Entry
from _one_core import Compiled, Done, clocked, compared, one_thread, turns


class Ours:
    """A training over seeds as one compiled program."""

    def __init__(self, train: Callable[[Any], Any], seeds: int, steps: int) -> None:
        """Compile it.

        Args:
            train: From a key to what came out of one seed's training.
            seeds: Trained at once.
            steps: Of one seed.
        """
        import jax

        self._seeds, self._steps = seeds, steps
        self._run = Compiled(jax.vmap(train), self._keys(0))
        self.seconds = self._run.seconds

    def _keys(self, number: int) -> Any:
        import jax

        return jax.random.split(jax.random.PRNGKey(number), self._seeds)

    def __call__(self, number: int) -> Done:
        """Train anew."""
        keys = self._keys(number)
        return clocked(lambda: self._run(keys), self._steps * self._seeds)


@cache
def our_q(mixer: str, updates: int, seeds: int) -> Ours:
    """Return the team Q-learner with JaxMARL's settings for MPE."""
    import jax

    from rolecraft.marl import QConfig, QLearner, TeamRewardWarning, team_env

    steps = updates * peers.ENVS * peers.LENGTH
    config = QConfig(
        mixer=mixer, roles="agent", hidden=peers.HIDDEN, steps=steps, envs=peers.ENVS, buffer=peers.BUFFER,
        batch=peers.BATCH, fits=1, lr=5e-3, clip=25.0, gamma=0.9, target_every=200, decay=0.1, tests=1,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TeamRewardWarning)
        learner = QLearner(team_env(peers.WORLD, horizon=peers.LENGTH), config)

    def train(key: Any) -> Any:
        state, figures = jax.lax.scan(learner.play_and_fit, learner.init(key), length=updates)
        return state.params, figures

    return Ours(train, seeds, steps)


@cache
def our_ippo(updates: int, seeds: int) -> Ours:
    """Return independent PPO with shared weights, of this package's parts and JaxMARL's settings for MPE."""
    import jax
    from jax import numpy as jnp

    from rolecraft.marl import Ppo, PpoBatch, PpoConfig, gae, team_env

    env = team_env(peers.WORLD, horizon=peers.LENGTH)
    rates: dict[str, Any] = {"actor_lr": 2.5e-4, "critic_lr": 2.5e-4, "gamma": 0.99, "decay": 0.95}
    ppo = Ppo(
        PpoConfig(epochs=peers.PPO_EPOCHS, minibatches=peers.PPO_PARTS, hidden=peers.HIDDEN, **rates),
        env.obs_size,
        env.actions,
    )

    def update(carry: Any, key: Any) -> Any:
        learner, worlds, step = carry
        play, learn = jax.random.split(key)

        def move(now: Any, key: Any) -> Any:
            worlds, step = now
            choose, world = jax.random.split(key)
            action, log_prob = ppo.act(learner.weights.actor, step.obs, step.avail, choose)
            worlds, after = jax.vmap(env.step)(jax.random.split(world, peers.PPO_ENVS), worlds, action)
            row = (step.obs, step.avail, action, log_prob, after.reward, after.done, after.info["final_obs"])
            return (worlds, after), row

        (worlds, step), row = jax.lax.scan(move, (worlds, step), jax.random.split(play, peers.PPO_STEPS))
        obs, avail, action, log_prob, reward, done, final = row
        over = jnp.broadcast_to(done[..., None], reward.shape)
        value, following = (ppo.value(learner.weights.critic, seen) for seen in (obs, final))
        found = gae(reward, value, following, over, over, ppo.config.gamma, ppo.config.decay)
        batch = PpoBatch(obs, obs, avail, action, log_prob, *found)
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[3:]), batch)
        learner, figures = ppo.update(learner, rows, learn)
        return (learner, worlds, step), {**figures, "reward": reward.mean()}

    def train(key: Any) -> Any:
        start, begin, rest = jax.random.split(key, 3)
        worlds, step = jax.vmap(env.reset)(jax.random.split(begin, peers.PPO_ENVS))
        (learner, *_), figures = jax.lax.scan(update, (ppo.init(start), worlds, step), jax.random.split(rest, updates))
        return learner.weights, figures

    return Ours(train, seeds, updates * peers.PPO_ENVS * peers.PPO_STEPS)


def against_jaxmarl(quick: bool) -> list[Entry]:
    """Compare with JaxMARL's scripts, one seed and several at once."""
    updates, rounds, found = UPDATES[quick], 2 if quick else 5, list[Entry]()
    cases: list[tuple[str, Callable[[int], Ours], Callable[[int], Any]]] = [
        ("VDN, its network", partial(our_q, "vdn", updates[0]), partial(peers.jaxmarl_vdn, updates[0])),
        (
            "VDN, our network in both", partial(our_q, "vdn", updates[0]),
            partial(peers.jaxmarl_vdn, updates[0], network=peers.deeper),
        ),
        ("IPPO", partial(our_ippo, updates[1]), partial(peers.jaxmarl_ippo, updates[1])),
    ]  # fmt: skip
    for name, ours, peer in cases:
        for seeds in (1,) if quick else (1, 4):
            mine, other = ours(seeds), peer(seeds)
            done = turns({"ours": mine, "peer": other}, rounds)
            found.append(
                compared(
                    f"marl: training steps, {name}, {seeds} seed{'s' * (seeds > 1)}, against JaxMARL's script",
                    "steps/s", done["ours"], done["peer"],
                    f"{peers.WORLD}, JaxMARL {_version('jaxmarl')}; compiling took {mine.seconds:.1f} s (ours) and "
                    f"{other.seconds:.1f} s (peer), apart",
                )
            )  # fmt: skip
    return found


def against_benchmarl(quick: bool) -> list[Entry]:
    """Compare with BenchMARL, one seed."""
    rounds, found = 1 if quick else 4, list[Entry]()
    with one_thread():
        for name in ("vdn", "iql", "ippo"):
            q, ppo = UPDATES[quick]
            mine = our_ippo(ppo, 1) if name == "ippo" else our_q(MIXERS[name], q, 1)
            others = {world: peers.benchmarl(name, world, 2 if quick else 5) for world in PLACES}
            done = turns({"ours": mine, **others}, rounds)
            found += [
                compared(
                    f"marl: training steps, {name.upper()}, against BenchMARL on {place}",
                    "steps/s", done["ours"], done[world],
                    f"simple_spread; BenchMARL {_version('benchmarl')}, torchrl {_version('torchrl')}, torch "
                    f"{_version('torch')}; compiling took {mine.seconds:.1f} s, apart",
                )
                for world, place in PLACES.items()
            ]  # fmt: skip
    return found


UPDATES = {False: (400, 60), True: (60, 20)}
"""Of a training by Q-learning and by PPO, in a whole run and a quick one; compiled once for all peers."""
MIXERS = {"vdn": "vdn", "iql": "independent"}
PLACES = {"mpe2": "PettingZoo's MPE", "vmas": "VMAS"}


def entries(quick: bool = False) -> list[Entry]:
    """Measure against every peer that is there; some minutes on one free core."""
    found = []
    for name, missing, measure in (
        ("JaxMARL's scripts", peers.missing_jaxmarl(), against_jaxmarl),
        ("BenchMARL", peers.missing_benchmarl(), against_benchmarl),
    ):
        if missing:
            print(f"not measured: {name} ({missing})", file=sys.stderr)
        else:
            found += measure(quick)
    return found


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


if __name__ == "__main__":
    for line in entries(quick="--quick" in sys.argv):
        print(line, flush=True)
