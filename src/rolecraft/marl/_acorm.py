"""ACORM on QMIX: contrastive role vectors for the policy, attention over them for the mixer (arXiv 2312.04819)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import optax
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.marl._acorm_net import AcormNet, Decoder, LastAction, Trace, role_of
from rolecraft.marl._attention_mixer import AttentionMixer
from rolecraft.marl._contrastive import check_clusters, contrastive_loss, kmeans, momentum_update
from rolecraft.marl._evaluate import Policy, evaluate
from rolecraft.marl._networks import best, explore
from rolecraft.marl._qlearn import QConfig, QLearner, QState, Stretch, lambda_returns
from rolecraft.marl._replay import draw, make_replay, push
from rolecraft.marl._team import Step, TeamEnv, with_roles

LABELS = ("kmeans", "shuffled")


class ClusterWarning(UserWarning):
    """Every agent is a cluster of its own: the loss only tells agents apart."""


@dataclass(frozen=True)
class AcormConfig(QConfig):
    """Settings of ACORM; those of `QConfig` come first."""

    mixer: str = "qmix"
    """Always QMIX's, with attention or without."""
    roles: Any = "none"
    """What the networks are told of roles beside what they find out. Paper: nothing."""
    dueling: bool = False
    lr: float = 6e-4
    """Of temporal differences. Paper: 6e-4, times 0.98 every 500 steps."""
    epsilon: tuple[float, float] = (1.0, 0.02)
    """Paper: 1 to 0.02."""
    tau: float = 0.005
    """Of soft target networks and momentum keys. Paper: 0.005."""
    embedding: int = 128
    """Units of the agent embedding. Paper: 128."""
    role_size: int = 64
    """Units of a role vector. Paper: 64."""
    cluster_num: int = 3
    """Of k-means. Paper: 3 on most maps."""
    contrast: bool = True
    """Learn roles by the contrastive loss."""
    attention: bool = True
    """Let the mixer attend over roles."""
    labels: str = "kmeans"
    """`kmeans`, or `shuffled`: the same clusters dealt out at random among the agents, a control."""
    contrast_lr: float = 8e-4
    """Paper: 8e-4."""
    embed_lr: float = 1e-3
    """Of the encoder and decoder before training. Paper: 1e-3."""
    embed_updates: int = 120
    """Updates of the embedding before training, one per episode. Paper: 120."""
    contrast_updates: int = 100
    """Contrastive updates before training. Paper: 100."""
    contrast_every: int = 200
    """Gradient steps between two contrastive updates in training. Paper: 200."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        super().__post_init__()
        if self.labels not in LABELS:
            raise UserError(f"labels: expected one of {', '.join(LABELS)}, got {self.labels!r}.")
        for name in ("embedding", "role_size", "cluster_num", "embed_updates", "contrast_updates", "contrast_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not 0 < self.tau <= 1 or self.contrast_lr <= 0 or self.embed_lr <= 0:
            raise UserError("tau must be above 0 and at most 1, contrast_lr and embed_lr above 0.")
        if self.mixer != "qmix" or not self.share or self.channels or self.lam:
            raise UserError("ACORM takes mixer='qmix', share=True, no channels and lam=0.")


def _is_embed(name: str) -> bool:
    return name.startswith("embed_")


class AcormLearner(QLearner):
    """The parts of ACORM for one world; train it with `train_q`.

    Args:
        env: The world; an agent whose observation is all zeros counts as dead.
        config: Settings.

    Raises:
        UserError: If there are more clusters than agents, or `QLearner` refuses.
    """

    config: AcormConfig

    def __init__(self, env: TeamEnv, config: AcormConfig) -> None:
        check_clusters(config.cluster_num, len(env.agents))
        if config.cluster_num == len(env.agents) and config.contrast:
            warnings.warn(
                f"{env.name}: cluster_num is the number of agents, so that each is a cluster of its own.",
                ClusterWarning,
                stacklevel=2,
            )
        super().__init__(LastAction(env), config)
        self._own = env.obs_size
        self.net: Any = AcormNet(env.actions, config.hidden, config.embedding, config.role_size)
        self.mix_net: Any = AttentionMixer(self.n, config.attention)
        self.decoder: Any = Decoder(config.embedding, env.obs_size + self.n)
        rate = optax.exponential_decay(config.lr, 500, 0.98, staircase=True)
        td = optax.chain(optax.clip_by_global_norm(config.clip), optax.adam(rate))
        self.td = optax.multi_transform({"role": td, "policy": td, "kept": optax.set_to_zero()}, self._groups)
        self.contrast_adam, self.embed_adam = optax.adam(config.contrast_lr), optax.adam(config.embed_lr)
        self.rounds = min(self.per_test, max(1, config.contrast_every // config.fits))
        """Stretches (of all worlds) between two contrastive updates."""
        self.blocks = max(1, self.per_test // self.rounds)
        self._total = self.blocks * self.rounds * config.tests

    @staticmethod
    def _groups(params: dict[str, Any]) -> Any:
        """Label the parameters: both groups are clipped by themselves."""

        def label(path: Any, _: Any) -> str:
            names = [str(part.key) for part in path]
            if names[0] not in ("net", "mixer"):
                return "kept"
            role = any(_is_embed(name) or name == "role" for name in names) and names[0] == "net"
            return "role" if role else "policy"

        return jax.tree_util.tree_map_with_path(label, params)

    def init(self, key: jax.Array) -> QState:
        """Return the state after the pre-training: replay filled, embedding and roles learnt."""
        return self.pretrain_roles(self.pretrain_embedding(self.begin(key)))

    def begin(self, key: jax.Array) -> QState:
        """Return untrained networks and an empty replay."""
        net, mix, dec, bil, key = jax.random.split(key, 5)
        obs, fresh = jnp.zeros((1, 1, self.n, self._size)), jnp.ones((1, 1), bool)
        size = self.config.role_size
        own = self.net.init(net, self.net.rest(1, self.n), obs, fresh)
        roles = jnp.zeros((1, 1, self.n, size))
        params = {
            "net": own,
            "mixer": self.mix_net.init(
                mix, jnp.zeros((1, 1, self.n)), jnp.zeros((1, 1, self.env.world_size)), fresh, roles
            ),
            "momentum": own["params"]["role"],
            "bilinear": jax.random.uniform(bil, (size, size)),
            "decoder": self.decoder.init(dec, jnp.zeros((1, self.config.embedding))),
        }
        optimiser = {
            "td": self.td.init(params),
            "contrast": self.contrast_adam.init(self._contrast_part(params)),
            "embed": self.embed_adam.init(self._embed_part(params)),
        }
        stretch = jax.eval_shape(lambda k: self.collect(own, k, 1.0), key)
        one = jax.tree.map(lambda leaf: jax.eval_shape(lambda x: x[0], leaf), stretch)
        return QState(key, params, params, optimiser, make_replay(one, self.config.buffer), jnp.int32(0))

    def alive(self, obs: jax.Array) -> jax.Array:
        """Return who takes part, (..., n), from observations (..., n, d): whose own observation is not all zeros."""
        return (obs[..., : self._own] != 0).any(-1)

    def look(self, net: Any, batch: Stretch) -> tuple[Stretch, Trace]:
        """Return a batch with time first, and what the networks make of it."""
        data: Stretch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch)
        rest = self.net.rest(data.obs.shape[1], self.n)
        return data, self.net.apply(net, rest, data.obs, data.fresh, method="trace")[1]

    def clusters(self, embed: jax.Array, alive: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return cluster labels (T, B, n), and where they hold (T, B), of embeddings (T, B, n, e)."""
        found = jax.vmap(jax.vmap(lambda e, on: kmeans(e, self.config.cluster_num, on)))(embed, alive)
        return found.label, found.valid

    @staticmethod
    def _embed_part(params: dict[str, Any]) -> dict[str, Any]:
        inner = params["net"]["params"]
        return {"net": {name: inner[name] for name in inner if _is_embed(name)}, "decoder": params["decoder"]}

    @staticmethod
    def _contrast_part(params: dict[str, Any]) -> dict[str, Any]:
        return {"role": params["net"]["params"]["role"], "bilinear": params["bilinear"]}

    @staticmethod
    def _inside(params: dict[str, Any], **new: Any) -> dict[str, Any]:
        return {**params, "net": {"params": {**params["net"]["params"], **new}}}

    def embed_loss(self, part: dict[str, Any], params: dict[str, Any], batch: Stretch) -> jax.Array:
        """Return the masked mean square error of the next observation and the agent's number, from the embedding."""
        data, trace = self.look(self._inside(params, **part["net"])["net"], batch)
        made = self.decoder.apply(part["decoder"], trace.embed[:-1])
        number = jnp.broadcast_to(jnp.eye(self.n), (*data.action.shape, self.n))
        wanted = jnp.concatenate([data.obs[1:, ..., : self._own], number], -1)
        mask = self.alive(data.obs[:-1]) & ~data.done[..., None]
        error = jnp.square(made - wanted).mean(-1)
        return (error * mask).sum() / jnp.maximum(mask.sum(), 1)

    def role_loss(self, part: dict[str, Any], params: dict[str, Any], batch: Stretch, key: jax.Array) -> jax.Array:
        """Return the contrastive loss; the embedding gets no gradient."""
        data, trace = self.look(params["net"], batch)
        embed, alive = jax.lax.stop_gradient(trace.embed), self.alive(data.obs)
        label, valid = self.clusters(embed, alive)
        if self.config.labels == "shuffled":
            label = jax.random.permutation(key, label, axis=-1, independent=True)
        query, slow = role_of(part["role"], embed), role_of(params["momentum"], embed)
        return contrastive_loss(query, slow, label, alive & valid[..., None], part["bilinear"])

    def fit_embedding(self, state: QState, key: jax.Array) -> tuple[QState, jax.Array]:
        """Take one step of the encoder and decoder."""
        part = self._embed_part(state.params)
        loss, gradient = jax.value_and_grad(self.embed_loss)(
            part, state.params, draw(state.replay, key, self.config.batch)
        )
        change, adam = self.embed_adam.update(gradient, state.optimiser["embed"])
        new: Any = optax.apply_updates(part, change)
        params = {**self._inside(state.params, **new["net"]), "decoder": new["decoder"]}
        return state._replace(params=params, optimiser={**state.optimiser, "embed": adam}), loss

    def fit_roles(self, state: QState, key: jax.Array) -> tuple[QState, jax.Array]:
        """Take one contrastive step, and let the momentum keys follow."""
        own, deal = jax.random.split(key)
        part = self._contrast_part(state.params)
        loss, gradient = jax.value_and_grad(self.role_loss)(
            part, state.params, draw(state.replay, own, self.config.batch), deal
        )
        change, adam = self.contrast_adam.update(gradient, state.optimiser["contrast"])
        new: Any = optax.apply_updates(part, change)
        params = {**self._inside(state.params, role=new["role"]), "bilinear": new["bilinear"]}
        params["momentum"] = momentum_update(params["momentum"], new["role"], self.config.tau)
        return state._replace(params=params, optimiser={**state.optimiser, "contrast": adam}), loss

    def pretrain_embedding(self, state: QState) -> QState:
        """Play at random, and fit the embedding once for every episode; the replay holds a batch first."""
        envs = self.config.envs

        def fill(state: QState, _: Any) -> tuple[QState, None]:
            key, play = jax.random.split(state.key)
            stretch = self.collect(state.params["net"], play, 1.0)
            return state._replace(key=key, replay=push(state.replay, stretch)), None

        def one(state: QState, _: Any) -> tuple[QState, jax.Array]:
            state, _ = fill(state, None)
            key, learn = jax.random.split(state.key)
            return jax.lax.scan(self.fit_embedding, state._replace(key=key), jax.random.split(learn, envs))

        state, _ = jax.lax.scan(fill, state, length=-(-min(self.config.batch, self.config.buffer) // envs))
        return jax.lax.scan(one, state, length=-(-self.config.embed_updates // envs))[0]

    def pretrain_roles(self, state: QState) -> QState:
        """Fit the role layer; the target networks start from the result."""
        if self.config.contrast:
            key, learn = jax.random.split(state.key)
            keys = jax.random.split(learn, self.config.contrast_updates)
            state, _ = jax.lax.scan(self.fit_roles, state._replace(key=key), keys)
        return state._replace(target=state.params)

    def loss(self, params: dict[str, Any], target: dict[str, Any], batch: Stretch) -> jax.Array:
        """Return the mean square of y_t - Q_tot; the target mixer takes the online queries and roles, as published."""
        data, trace = self.look(params["net"], batch)
        _, fixed = self.look(target["net"], batch)
        taken = jnp.take_along_axis(trace.values[:-1], data.action[..., None], -1)[..., 0]
        chooser = trace.values if self.config.double else fixed.values
        greedy = best(jax.lax.stop_gradient(chooser[1:]), data.avail[1:])
        following = jnp.take_along_axis(fixed.values[1:], greedy[..., None], -1)[..., 0]
        encoded, query = self.mix_net.apply(params["mixer"], data.world, data.fresh, method="remember")
        mixed, _ = self.mix_net.apply(params["mixer"], taken, encoded[:-1], query[:-1], trace.role[:-1], method="mix")
        bound, _ = self.mix_net.apply(target["mixer"], following, encoded[1:], query[1:], trace.role[1:], method="mix")
        y = lambda_returns(
            data.reward[..., None], data.done[..., None].astype(jnp.float32), bound, self.config.gamma, 0.0
        )
        return jnp.square(jax.lax.stop_gradient(y) - mixed).mean()

    def fit(self, state: QState, key: jax.Array) -> tuple[QState, jax.Array]:
        """Take one step of temporal differences, into roles and embedding too; the target networks follow softly."""
        batch = draw(state.replay, key, self.config.batch)
        loss, gradient = jax.value_and_grad(self.loss)(state.params, state.target, batch)
        change, td = self.td.update(gradient, state.optimiser["td"], state.params)
        params: Any = optax.apply_updates(state.params, change)
        target = momentum_update(state.target, params, self.config.tau)
        return state._replace(params=params, target=target, optimiser={**state.optimiser, "td": td}), loss

    def play_and_fit(self, state: QState, _: Any = None) -> tuple[QState, dict[str, jax.Array]]:
        """Play one stretch in every world, then fit."""
        key, play, learn = jax.random.split(state.key, 3)
        stretch = self.collect(state.params["net"], play, self.epsilon(state.stretches))
        state = state._replace(key=key, replay=push(state.replay, stretch), stretches=state.stretches + 1)
        state, loss = jax.lax.scan(self.fit, state, jax.random.split(learn, self.config.fits))
        return state, {"loss": loss.mean(), "reward_per_step": stretch.reward.mean()}

    def block(self, state: QState, _: Any = None) -> tuple[QState, dict[str, jax.Array]]:
        """Play and fit for `contrast_every` gradient steps, then take one contrastive step."""
        state, figures = jax.lax.scan(self.play_and_fit, state, length=self.rounds)
        figures = jax.tree.map(lambda values: values.mean(0), figures)
        if not self.config.contrast:
            return state, {**figures, "role_loss": jnp.float32(0)}
        key, learn = jax.random.split(state.key)
        state, role = self.fit_roles(state._replace(key=key), learn)
        return state, {**figures, "role_loss": role}

    def update(self, state: QState) -> tuple[QState, dict[str, jax.Array]]:
        """Train up to the next test, and take it: one update of the loop."""
        key, test = jax.random.split(state.key)
        state, figures = jax.lax.scan(self.block, state._replace(key=key), length=self.blocks)
        played = evaluate(self.env, self.policy(state.params), test, self.config.test_episodes)
        return state, {
            **jax.tree.map(lambda values: values.mean(0), figures),
            "epsilon": self.epsilon(state.stretches),
            "return": played.returns.mean(),
            "length": played.length.mean(),
        }

    def policy(self, params: Any, epsilon: float = 0.0) -> Policy:
        """Return the greedy team; its notes hold role vectors (n, r) and clusters (n,), -1 for the dead."""

        def start(key: jax.Array) -> Any:
            return self.net.rest(1, self.n), self.deal(key), jnp.ones(1, bool)

        def act(carry: Any, step: Step, key: jax.Array) -> tuple[Any, jax.Array, dict[str, Any]]:
            memory, features, fresh = carry
            obs = with_roles(step.obs, features)
            memory, trace = self.net.apply(params["net"], memory, obs[None, None], fresh[None], method="trace")
            action = explore(key, trace.values[0, 0], step.avail, epsilon)
            alive = self.alive(obs)
            label = kmeans(trace.embed[0, 0], self.config.cluster_num, alive).label
            notes = {"role": trace.role[0, 0], "cluster": jnp.where(alive, label, -1)}
            return (memory, features, jnp.zeros(1, bool)), action, notes

        return Policy(start, act)

    def traces(self, params: Any, stretch: Stretch) -> dict[str, jax.Array]:
        """Return what was made of stretches of play, leaves (B, T + 1, ...).

        Returns:
            `role` (B, T + 1, n, r), `embed` (B, T + 1, n, e), `cluster` (B, T + 1, n) (-1 for the dead and where there
            are too few distinct embeddings) and `attention` (B, T + 1, heads, n, n).
        """
        data, trace = self.look(params["net"], stretch)
        alive = self.alive(data.obs)
        label, valid = self.clusters(trace.embed, alive)
        _, attention = self.mix_net.apply(
            params["mixer"], jnp.zeros(data.obs.shape[:3]), data.world, data.fresh, trace.role
        )
        found = {
            "role": trace.role,
            "embed": trace.embed,
            "cluster": jnp.where(alive & valid[..., None], label, -1),
            "attention": attention,
        }
        return {name: jnp.swapaxes(leaf, 0, 1) for name, leaf in found.items()}


__all__ = ["AcormConfig", "AcormLearner", "ClusterWarning"]
