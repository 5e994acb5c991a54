"""The half of RODE's studies that needs JAX: random play, encoders, training, and the larger team."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.marl import (
    ActionEffects,
    Moves,
    QConfig,
    QLearner,
    RodeConfig,
    RodeLearner,
    RoleWarning,
    TeamEnv,
    effect_config,
    evaluate,
    random_moves,
    team_env,
    train_q,
    train_rode,
    transfer_rode,
)
from rolecraft.marl._acorm_net import LastAction
from rolecraft.marl._action_effects import count_actions
from rolecraft.marl._rode_roles import cluster_actions, discover_roles
from rolecraft.systems.marl._rode_worlds import MOVES, PlantedEffects, Skirmish, Won

if TYPE_CHECKING:
    from rolecraft.systems.marl.rode import DiscoveryConfig, LearningConfig, TransferConfig

SMAX_MOVES = 5
"""The first actions of SMAX: four moves and stop."""
BEST = 2.0
"""Return of a won episode: 1 for all damage, 1 for the win."""
LATE = 3
"""The last 1 / LATE of the tests are late."""


def make_world(scenario: str) -> TeamEnv:
    """Return one of RODE's tiny worlds, or a map of SMAX whose events say who won."""
    tiny: dict[str, Callable[[], TeamEnv]] = {"planted": PlantedEffects, "skirmish": Skirmish}
    if scenario in tiny:
        return tiny[scenario]()
    return Won(team_env("HeuristicEnemySMAX", scenario=scenario))


def kinds_of(env: TeamEnv) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each action's true type, coarse and fine, (actions,) each.

    In SMAX: move or attack, and move or the type of unit attacked; in the planted world: the group, both times.
    """
    if isinstance(env, PlantedEffects):
        group = np.arange(env.actions) // env.each
        return group, group
    moves = MOVES if isinstance(env, Skirmish) else SMAX_MOVES
    coarse = (np.arange(env.actions) >= moves).astype(np.int64)
    if isinstance(env, Skirmish):
        return coarse, coarse
    inner: Any = env
    units = np.asarray(inner.inner.env.scenario)[len(env.agents) :]
    _, number = np.unique(units, return_inverse=True)
    return coarse, np.concatenate([np.zeros(moves, np.int64), 1 + number])


def gather(config: DiscoveryConfig, seed: int) -> tuple[Moves, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Play at random; returns the moves and the actions' true types."""
    env = make_world(config.scenario)
    return random_moves(env, _key("moves", seed), config.steps), kinds_of(env)


def _key(what: str, seed: int) -> jax.Array:
    return jax.random.PRNGKey(derive_seed("rode", what, seed) % 2**32)


@cache
def _fit(agents: int, actions: int, size: int, kind: str, updates: int, sample: int) -> tuple[ActionEffects, Any]:
    """One compiled program for all seeds of an arm."""
    effects = ActionEffects(agents, actions, size, effect_config(kind))
    return effects, jax.jit(lambda moves, key: effects.fit(moves, key, updates, sample)[0])


def score_effects(
    config: DiscoveryConfig, arm: str, seed: int, moves: Moves, kinds: tuple[Any, Any]
) -> tuple[dict[str, float], list[int]]:
    """Fit one arm's encoder, and compare clusters of its latents with the true types.

    Returns:
        `ari` of as many clusters as coarse types, `ari_fine` of as many as fine ones, `apart` (mean distance between
        latents of different coarse types, as a multiple of that within), `seldom` (visits of the rarest action); and
        the clusters (actions,).

    Raises:
        UserError: If an action was tried too seldom.
    """
    from sklearn.metrics import adjusted_rand_score

    actions = len(kinds[0])
    agents, size = moves.obs.shape[1:]
    kind = arm if arm in ("balanced", "sampling", "published") else "balanced"
    effects, fit = _fit(agents, actions, size, kind, config.updates, config.sample)
    key = _key("encoder", seed)
    if arm == "untrained":
        params = effects.init(key)
    else:
        if arm == "shuffled":
            moves = moves._replace(action=jax.random.permutation(_key("deal", seed), moves.action))
        params = fit(moves, key)
    latents, visits = np.asarray(effects.latents(params)), np.asarray(count_actions(moves, actions))
    coarse, fine = kinds
    spec = discover_roles(latents, len(set(coarse)), visits=visits, minimum=config.minimum)
    label = spec.mask.argmax(0)
    finer = cluster_actions(latents, len(set(fine)))
    gap = np.sqrt(np.square(latents[:, None] - latents).sum(-1))
    same, pair = coarse[:, None] == coarse, ~np.eye(actions, dtype=bool)
    figures = {
        "ari": float(adjusted_rand_score(coarse, label)),
        "ari_fine": float(adjusted_rand_score(fine, finer)),
        "apart": float(gap[~same].mean() / max(gap[same & pair].mean(), 1e-9)),
        "seldom": float(visits.min()),
    }
    return figures, label.tolist()


def _quiet(make: Callable[[], Any]) -> Any:
    """Make a learner without the notice that roles are not told: RODE finds them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoleWarning)
        return make()


def rode_config(config: LearningConfig, arm: Mapping[str, Any]) -> RodeConfig:
    """Return an arm's settings of RODE.

    Raises:
        UserError: If a setting is out of range.
    """
    own: dict[str, Any] = {
        "clusters": config.clusters, "rule": config.rule, "role_interval": config.role_interval,
        "role_steps": config.role_steps, "anneal": config.anneal, "optimiser": "adam",
        "effect_fits": config.effect_fits,
    }  # fmt: skip
    return RodeConfig(**{**config.shared(), **own, **arm})


def make_learner(config: LearningConfig, arm: Mapping[str, Any] | None, env: TeamEnv) -> Any:
    """Return an arm's learner; None is QMIX, which sees the last actions and numbers of the agents too."""
    if arm is not None:
        return _quiet(lambda: RodeLearner(env, rode_config(config, arm)))
    decay = min(1.0, config.anneal / config.steps)
    return _quiet(lambda: QLearner(LastAction(env), QConfig(decay=decay, **config.shared())))


def learn(
    config: LearningConfig, arm: Mapping[str, Any] | None, folder: Path
) -> list[tuple[dict[str, float], dict[str, list[float]], dict[str, Any]]]:
    """Train one arm from all seeds; returns a row, curves and the roles of each."""
    env = make_world(config.scenario)
    learner = make_learner(config, arm, env)
    train = train_q if arm is None else train_rode
    identity = {"arm": arm, "config": repr(config)}
    state, metrics = train(learner, config.seeds, folder=folder, identity=identity)
    before = rode_config(config, arm or {}).tests_before(env.horizon)
    late = max(1, config.tests // LATE)
    found = []
    for at in range(len(config.seeds)):
        win, returns = metrics["events"][:, at].mean(-1), metrics["return"][:, at]
        row = {
            "auc": float(win[before:].mean()), "auc_all": float(win.mean()), "last": float(win[-late:].mean()),
            "auc_return": float(returns[before:].mean()), "last_return": float(returns[-late:].mean()),
        }  # fmt: skip
        roles: dict[str, Any] = {}
        if arm is not None:
            params = jax.tree.map(lambda leaf, at=at: leaf[at], state.params)
            more, roles = describe_roles(learner, params, env)
            use = metrics["use"][-late:, at].mean(0)[: len(roles["mask"])]
            shown = {name: float(metrics[name][-late:, at].mean()) for name in ("fallback", "switches")}
            row |= more | shown | {"most_used": float(use.max())}
            roles["use"] = use.tolist()
        curves = {name: values[:, at].tolist() for name, values in metrics.items() if values.ndim == 2}
        found.append((row, {"win": win.tolist(), **curves}, roles))
    drop_states(folder)
    return found


def describe_roles(learner: RodeLearner, params: Any, env: TeamEnv) -> tuple[dict[str, float], dict[str, Any]]:
    """Return how many roles there are, their adjusted Rand index with the true types of actions, and their masks."""
    from sklearn.metrics import adjusted_rand_score

    mask = learner.spec(params).mask
    # Actions of several roles count as a group of their own.
    group = np.unique(mask, axis=1, return_inverse=True)[1].ravel()
    ari = float(adjusted_rand_score(kinds_of(env)[0], group))
    return {"roles": float(len(mask)), "ari": ari}, {"mask": mask.astype(int).tolist()}


def drop_states(folder: Path) -> None:
    """Remove the checkpoints of a finished training: replays are large, and rows and curves are stored."""
    for path in folder.glob("**/state-*.safetensors"):
        path.unlink()


def play_at_random(config: LearningConfig) -> list[tuple[dict[str, float], dict[str, list[float]], dict[str, Any]]]:
    """Return rows of a team that draws its actions, over as many episodes as the late tests have."""
    env = make_world(config.scenario)
    learner = make_learner(config, None, env)
    episodes = max(1, config.tests // LATE) * config.test_episodes

    @jax.jit
    def play(key: jax.Array) -> Any:
        first, games = jax.random.split(key)
        return evaluate(learner.env, learner.policy(learner.init(first).params, epsilon=1.0), games, episodes)

    found = []
    for seed in config.seeds:
        played = play(_key("random", seed))
        win, mean = float(played.events.mean()), float(played.returns.mean())
        row = {"auc": win, "auc_all": win, "last": win, "auc_return": mean, "last_return": mean}
        found.append((row, dict[str, list[float]](), dict[str, Any]()))
    return found


def larger(times: int) -> tuple[TeamEnv, list[int | Sequence[int]]]:
    """Return the large world, and what each of its actions is like in the small one.

    Moves and the first attacks are the known ones; all further attacks are like the known attacks.
    """
    small = Skirmish()
    known = list(range(MOVES + small.targets))
    attacks = tuple(range(MOVES, MOVES + small.targets))
    unseen = small.targets * (times - 1)
    env = Skirmish(agents=len(small.agents) * times, targets=small.targets * times)
    return env, [*known, *[attacks] * unseen]


def transferred(
    config: TransferConfig, missing: Sequence[tuple[str, int]], folder: Path
) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Train in the small world, and yield the missing arms' rows."""
    env = make_world(config.scenario)
    learner: RodeLearner = make_learner(config, {"effects": "balanced"}, env)
    identity = {"config": repr(config)}
    state, _ = train_rode(learner, config.seeds, folder=folder, identity=identity)
    score: dict[bool, Any] = {}  # one compiled program for each of the two worlds
    for at, seed in enumerate(config.seeds):
        own = jax.tree.map(lambda leaf, at=at: leaf[at], state.params)
        for arm in config.arms:
            if (arm, seed) not in missing:
                continue
            player, params = _quiet(partial(_player, config, arm, seed, learner, own))
            small = arm == "source"
            if small not in score:
                score[small] = jax.jit(partial(_score, player, config.episodes))
            found = score[small](params["net"], _key("play", seed))
            yield arm, seed, {name: float(value) for name, value in found.items()}
    drop_states(folder)


def _player(config: TransferConfig, arm: str, seed: int, learner: RodeLearner, own: Any) -> tuple[RodeLearner, Any]:
    """Return who plays in an arm: a learner for its world, and parameters."""
    if arm == "source":
        return learner, own
    env, like = larger(config.times)
    if arm == "untrained":
        fresh = jax.jit(lambda key: learner.init(key).params["net"])(_key("untrained", seed))
        own = {**own, "net": {"params": fresh["params"], "roles": own["net"]["roles"]}}
    latents = None
    if arm == "random-latents":
        held = np.asarray(own["net"]["roles"]["held"]["action"])
        known = [old for old in like if isinstance(old, int)]
        rng = np.random.default_rng(derive_seed("rode", "latents", seed))
        drawn = rng.normal(held.mean(0), held.std(0), (len(like) - len(known), held.shape[1]))
        latents = np.concatenate([held[known], drawn])
    return transfer_rode(learner, own, env, like, latents=latents)


def _score(learner: RodeLearner, episodes: int, net: Any, key: jax.Array) -> dict[str, jax.Array]:
    played = evaluate(learner.env, learner.policy({"net": net}), key, episodes)
    return {"score": played.returns.mean() / BEST, "win": played.events.mean(), "length": played.length.mean()}


__all__ = [
    "describe_roles", "drop_states", "gather", "kinds_of", "larger", "learn", "make_learner", "make_world",
    "play_at_random", "rode_config", "score_effects", "transferred",
]  # fmt: skip
