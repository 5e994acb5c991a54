"""The half of ACORM's studies that needs JAX: a world of hidden roles, pre-training, and what is measured of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp
from numpy.typing import NDArray

from rolecraft._run import derive_seed
from rolecraft.marl import (
    AcormConfig,
    AcormLearner,
    Moment,
    Moved,
    QConfig,
    QLearner,
    RoleWarning,
    TeamEnv,
    TeamRewardWarning,
    TeamWorld,
    team_env,
    train_q,
)
from rolecraft.marl._acorm_net import LastAction
from rolecraft.marl._qlearn import QState, Stretch
from rolecraft.marl._replay import push

if TYPE_CHECKING:
    from rolecraft.systems.marl.acorm import LearningConfig, RepresentationConfig

PLANTED = "planted"
KINDS = 3
"""Hidden roles of the planted world."""
POINTS = 600
"""Most role vectors of which a figure is taken."""
MOMENTS = 100
"""Most moments within which the silhouette by cluster is taken."""
LATE = 0.5
"""Steps of an episode before this part of it tell too little of a role, and are left out."""


class PlantedState(NamedTuple):
    """What the agents are, and what they see."""

    kind: jax.Array
    """(n,), 0 to 2; dealt out anew in every episode."""
    seen: jax.Array
    """(n, 2), a noisy reading of it."""


class PlantedRoles(TeamWorld):
    """Agents of three hidden roles that get noisy readings of their own; each should name it.

    A reading is one of three points on the unit circle plus noise, so that a single one tells little of the role and
    the history of them all of it; the best guess of the next reading depends on the role alone. Naming it
    (action = role) earns 1 / (n horizon).

    Args:
        agents: A multiple of three.
        noise: Standard deviation of a reading.
        horizon: Steps.
    """

    team_reward = True

    def __init__(self, agents: int = 6, noise: float = 1.5, horizon: int = 16) -> None:
        self.noise = noise
        names = [f"agent_{i}" for i in range(agents)]
        super().__init__(
            PLANTED, names, ["agent"] * agents, obs_size=2, actions=KINDS, world_size=agents * KINDS, horizon=horizon
        )

    def _read(self, key: jax.Array, kind: jax.Array) -> PlantedState:
        angle = 2 * jnp.pi * kind / KINDS
        point = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
        return PlantedState(kind, point + self.noise * jax.random.normal(key, point.shape))

    def start(self, key: jax.Array) -> PlantedState:
        """Deal the roles."""
        deal, read = jax.random.split(key)
        return self._read(read, jax.random.permutation(deal, jnp.arange(len(self.agents)) % KINDS))

    def move(self, key: jax.Array, state: PlantedState, actions: jax.Array) -> Moved:
        """Read again, and pay who names its role."""
        reward = (actions == state.kind).astype(jnp.float32) / (len(self.agents) * self.horizon)
        return Moved(self._read(key, state.kind), reward, jnp.zeros((), bool), {})

    def look(self, state: PlantedState) -> Moment:
        """Return the readings; the whole state tells the roles, one-hot."""
        world = jax.nn.one_hot(state.kind, KINDS).ravel()
        return Moment(state.seen, jnp.ones((len(self.agents), KINDS), bool), world)


def make_world(scenario: str) -> TeamEnv:
    """Return the planted world, or a map of SMAX against its scripted enemy."""
    if scenario == PLANTED:
        return PlantedRoles()
    return team_env("HeuristicEnemySMAX", scenario=scenario)


def _quiet(make: Callable[[], Any]) -> Any:
    """Make a learner without the notice that roles are not told (ACORM finds them) or rewards are summed."""
    with warnings.catch_warnings():
        for kind in (RoleWarning, TeamRewardWarning):
            warnings.simplefilter("ignore", kind)
        return make()


def kinds_of(env: TeamEnv, stretch: Stretch) -> NDArray[np.int64]:
    """Return each agent's true kind, (B, T + 1, n): the planted role, or the unit's type."""
    shape = (*stretch.obs.shape[:2], len(env.agents))
    if isinstance(env, PlantedRoles):
        planted: NDArray[np.int64] = np.asarray(stretch.world).reshape(*shape, KINDS).argmax(-1)
        return planted
    types = np.asarray(env.env.scenario)[: len(env.agents)]  # type: ignore[attr-defined]
    return np.broadcast_to(types, shape).astype(np.int64)


def pretrain(config: RepresentationConfig, seed: int) -> tuple[AcormLearner, dict[str, Any], Stretch]:
    """Gather play, learn an embedding from it, and from that the roles in two ways.

    Returns:
        The learner, `{arm: params}` for no-contrast, contrast and shuffled, and the play, leaves (B, ...).
    """
    env = make_world(config.scenario)

    def make(labels: str) -> Any:
        return _quiet(lambda: AcormLearner(env, config.learner(labels=labels)))

    learners = {labels: make(labels) for labels in ("kmeans", "shuffled")}
    learner: AcormLearner = learners["kmeans"]
    key, begin, embed, roles = jax.random.split(jax.random.PRNGKey(derive_seed("acorm", seed) % 2**32), 4)
    state = jax.jit(learner.begin)(begin)
    replay = _behaviour(config, env, seed).replay if config.steps else _random_play(learner, state, key).replay

    def fitted(fit: Callable[..., Any], state: QState, key: jax.Array, updates: int) -> QState:
        run = jax.jit(lambda state: jax.lax.scan(fit, state, jax.random.split(key, updates))[0])
        found: QState = run(state)
        return found

    base = fitted(learner.fit_embedding, state._replace(replay=replay), embed, config.embed_updates)
    found = {"no-contrast": base.params}
    for arm, labels in (("contrast", "kmeans"), ("shuffled", "shuffled")):
        found[arm] = fitted(learners[labels].fit_roles, base, roles, config.contrast_updates).params
    filled = min(int(replay.filled), config.episodes)
    return learner, found, jax.tree.map(lambda leaf: leaf[:filled], replay.data)


def _random_play(learner: AcormLearner, state: QState, key: jax.Array) -> QState:
    config = learner.config
    rounds = config.buffer // config.envs

    def play(state: QState, key: jax.Array) -> tuple[QState, None]:
        return state._replace(replay=push(state.replay, learner.collect(state.params["net"], key, 1.0))), None

    found: QState = jax.jit(lambda s: jax.lax.scan(play, s, jax.random.split(key, rounds))[0])(state)
    return found


def _behaviour(config: RepresentationConfig, env: TeamEnv, seed: int) -> QState:
    """Train QMIX (ACORM's networks without contrast or attention), for the episodes in its replay alone."""
    learner = _quiet(lambda: AcormLearner(env, config.learner(contrast=False, attention=False)))
    state, _ = train_q(learner, [seed])
    found: QState = jax.tree.map(lambda leaf: leaf[0], state)
    return found


def score(vectors: Any, kinds: Any, clusters: Any, episodes: Any, moments: Any, seed: int) -> dict[str, float]:
    """Measure how well vectors tell the true kinds.

    Args:
        vectors: (m, r).
        kinds: (m,), the truth.
        clusters: (m,), of k-means; -1 where there is none.
        episodes: (m,): the probe is tested on other episodes than it was fitted on.
        moments: (m,): one number per episode and step; clusters of two moments have nothing to do with each other.
        seed: Of the choice of at most `POINTS` vectors.

    Returns:
        `silhouette` by kind, and `by_cluster`, its mean within moments, -1 to 1; `probe`, the accuracy of a linear
        probe for the kind. NaN where there is one kind or cluster only.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import silhouette_score
    from sklearn.model_selection import GroupKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pick = np.random.default_rng(seed).permutation(len(vectors))[:POINTS]
    x, y, group = (np.asarray(array)[pick] for array in (vectors, kinds, episodes))

    def silhouette(label: Any, x: Any) -> float:
        return float(silhouette_score(x, label)) if 1 < len(set(label.tolist())) < len(x) else float("nan")

    probe = float("nan")
    if len(set(y.tolist())) > 1:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        folds = GroupKFold(min(5, len(set(group.tolist()))))
        probe = float(cross_val_score(model, x, y, groups=group, cv=folds).mean())
    held = [(moments == moment) & (clusters >= 0) for moment in dict.fromkeys(moments[pick[:MOMENTS]].tolist())]
    found = np.array([silhouette(clusters[one], vectors[one]) for one in held])
    known = found[np.isfinite(found)]
    by_cluster = float(known.mean()) if len(known) else float("nan")
    return {"silhouette": silhouette(y, x), "by_cluster": by_cluster, "probe": probe}


def represent(config: RepresentationConfig, seed: int) -> dict[str, dict[str, float]]:
    """Return the figures of all arms of one seed; `raw` is the embedding the roles are made of."""
    learner, params, play = pretrain(config, seed)
    inner: Any = learner.env
    kinds = kinds_of(inner.inner, play)
    late = np.arange(kinds.shape[1])[None, :, None] >= LATE * (kinds.shape[1] - 1) if config.steps == 0 else True
    chosen = np.asarray(learner.alive(play.obs)) & late & ~np.asarray(play.fresh)[..., None]
    episodes = np.broadcast_to(np.arange(len(kinds))[:, None, None], kinds.shape)[chosen]
    every = np.broadcast_to(np.arange(kinds[..., 0].size).reshape(*kinds.shape[:2], 1), kinds.shape)[chosen]
    traces = {arm: jax.jit(learner.traces)(own, play) for arm, own in params.items()}
    clusters = np.asarray(traces["no-contrast"]["cluster"])[chosen]
    vectors = {arm: np.asarray(trace["role"])[chosen] for arm, trace in traces.items()}
    vectors["raw"] = np.asarray(traces["no-contrast"]["embed"])[chosen]
    return {arm: score(x, kinds[chosen], clusters, episodes, every, seed) for arm, x in vectors.items()}


def learn(config: LearningConfig, arm: Mapping[str, Any] | None, folder: Any) -> dict[str, NDArray[Any]]:
    """Train one arm from all seeds; None is QMIX, which sees the last actions too. Returns its metrics (tests, S)."""
    env = make_world(config.scenario)

    def make() -> QLearner:
        if arm is None:
            return QLearner(LastAction(env), QConfig(mixer="qmix", roles="none", dueling=False, **config.shared()))
        own: dict[str, Any] = {"embed_updates": config.embed_updates, "contrast_updates": config.contrast_updates}
        return AcormLearner(env, AcormConfig(cluster_num=config.cluster_num, **own, **config.shared(), **arm))

    return train_q(_quiet(make), config.seeds, folder=folder, identity={"arm": arm, "config": repr(config)})[1]
