"""RODE: roles are sets of actions with like effects; a slow selector chooses roles, fast policies choose actions.

Wang, Gupta, Mahajan, Peng, Whiteson, Zhang, arXiv 2010.01523. Training has two phases. In the first all roles are alike
and the action encoder learns what actions do; then actions are clustered, roles and latents are frozen, and the second
phase learns to choose them. The whole loop of a phase is one compiled program, vmapped over seeds.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax import numpy as jnp

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.marl._acorm_net import LastAction
from rolecraft.marl._action_effects import ActionEffects, count_actions, effect_config, moves_of
from rolecraft.marl._evaluate import Policy, evaluate, lazy_agent_index
from rolecraft.marl._qlearn import QLearner
from rolecraft.marl._replay import Replay, draw, make_replay, push
from rolecraft.marl._rode_config import RodeConfig, RoleIntervalWarning
from rolecraft.marl._rode_loss import RodeStretch, rode_losses
from rolecraft.marl._rode_net import (
    KnownActions,
    Look,
    RodeNet,
    Roles,
    action_values,
    choose_roles,
    explore_roles,
    held,
    with_held,
)
from rolecraft.marl._rode_roles import RoleSpec, discover_roles
from rolecraft.marl._team import Step, TeamEnv, with_roles


class RodeState(NamedTuple):
    """All that training carries from one update to the next."""

    key: jax.Array
    params: dict[str, Any]
    """`net` (with the roles in it), `mixer` and `role_mixer`."""
    target: dict[str, Any]
    optimiser: Any
    replay: Replay
    stretches: jax.Array
    """Stretches (of all worlds) so far."""
    effects: Any
    """Of the action encoder."""
    effects_optimiser: Any
    visits: jax.Array
    """(actions,): how often each action was taken before roles were found."""
    found: jax.Array
    """Stretches after which roles were found; 0 before."""


class RodeLearner(QLearner):
    """The parts of RODE for one world; train it with `train_rode`.

    Args:
        env: The world.
        config: Settings.
        basis: (actions, known actions): agents see their last action in terms of another world's; see `transfer_rode`.

    Raises:
        UserError: If `QLearner` refuses.
    """

    config: RodeConfig

    def __init__(self, env: TeamEnv, config: RodeConfig, basis: Any = None) -> None:
        super().__init__(LastAction(env) if basis is None else KnownActions(env, basis), config)
        if config.role_interval > env.horizon:
            warnings.warn(
                f"{env.name}: role_interval ({config.role_interval}) is longer than an episode ({env.horizon}): roles "
                "are chosen once in each.",
                RoleIntervalWarning,
                stacklevel=2,
            )
        self._own = env.obs_size
        self.places = max(config.clusters, 4)
        """Places for roles: the published clean-up may make four of fewer clusters."""
        self.net: Any = RodeNet(env.actions, self.places, config.latent, config.hidden)
        self.effects = ActionEffects(
            self.n, env.actions, env.obs_size, effect_config(config.effects, latent=config.latent)
        )
        rule: Any = (
            optax.adam(config.lr)
            if config.optimiser == "adam"
            else optax.rmsprop(config.lr, decay=0.99, eps=1e-5, eps_in_sqrt=False)
        )
        learnt = optax.chain(optax.clip_by_global_norm(config.clip), rule)
        self.optimiser = optax.multi_transform({"learnt": learnt, "kept": optax.set_to_zero()}, _groups)
        self.tests_before = config.tests_before(env.horizon)
        """Tests before roles are found, one at least."""

    def init(self, key: jax.Array) -> Any:
        """Return the `RodeState` before training; vmap it over keys to train several seeds."""
        net, mix, role_mix, effects, key = jax.random.split(key, 5)
        obs, fresh = jnp.zeros((1, 1, self.n, self._size)), jnp.ones((1, 1), bool)
        params = {
            "net": self.net.init(net, self.net.rest(1, self.n), obs, fresh),
            "mixer": self.mixer.init(mix, self.n, self.env.world_size),
            "role_mixer": self.mixer.init(role_mix, self.n, self.env.world_size),
        }
        own = self.effects.init(effects)
        stretch = jax.eval_shape(lambda k: self.collect(params["net"], k, 1.0), key)
        one = jax.tree.map(lambda leaf: jax.eval_shape(lambda x: x[0], leaf), stretch)
        return RodeState(
            key, params, params, self.optimiser.init(params), make_replay(one, self.config.buffer), jnp.int32(0),
            own, self.effects.optimiser.init(own), jnp.zeros(self.env.actions, jnp.int32), jnp.int32(0),
        )  # fmt: skip

    def epsilon(self, count: jax.Array) -> jax.Array:
        """Return the exploration `count` stretches after its schedule began."""
        start, end = self.config.epsilon
        part = jnp.clip(count * (self.config.envs * self.env.horizon) / self.config.anneal, 0.0, 1.0)
        return start + (end - start) * part

    def look(self, net: Any, memory: jax.Array, obs: jax.Array, fresh: jax.Array) -> tuple[jax.Array, Look]:
        """Return the memory and what the networks make of a stretch of time; see `RodeNet`."""
        found: tuple[jax.Array, Look] = self.net.apply(net, memory, obs, fresh)
        return found

    def decide(
        self, net: Any, carry: Any, obs: jax.Array, avail: jax.Array, key: jax.Array, epsilon: jax.Array | float
    ) -> tuple[Any, jax.Array, dict[str, jax.Array]]:
        """Choose roles where it is time, and actions.

        Args:
            net: The networks.
            carry: Memory (B, n, m), roles so far (B, n), and the step of the episode (B,).
            obs: (B, n, d), roles' features included.
            avail: (B, n, actions).
            key: For the draws.
            epsilon: Of roles and of actions.

        Returns:
            The carry, actions (B, n), and `role` (B, n), `chosen` (B,) and `fallback` (B, n).
        """
        memory, role, time = carry
        first, second = jax.random.split(key)
        memory, seen = self.look(net, memory, obs[None], (time == 0)[None])
        roles = held(net)
        chosen = time % self.config.role_interval == 0
        role = jnp.where(chosen[:, None], choose_roles(first, seen.role[0], roles.real, epsilon), role)
        values = action_values(seen.keys[0], role, roles.action)
        action, none = explore_roles(second, values, avail, roles.mask[role] > 0, epsilon)
        return (memory, role, time + 1), action, {"role": role, "chosen": chosen, "fallback": none}

    def idle(self, batch: int) -> Any:
        """Return what `decide` carries at the start of episodes."""
        return self.net.rest(batch, self.n), jnp.zeros((batch, self.n), jnp.int32), jnp.zeros(batch, jnp.int32)

    def collect(self, net: Any, key: jax.Array, epsilon: jax.Array | float) -> Any:
        """Play one stretch in every world; a `RodeStretch`, leaves (envs, ...)."""
        envs = self.config.envs
        begin, roles, rest = jax.random.split(key, 3)
        state, step = jax.vmap(self.env.reset)(jax.random.split(begin, envs))
        features = jax.vmap(self.deal)(jax.random.split(roles, envs))

        def move(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            state, step, mind, features = carry
            choose, world, deal = jax.random.split(key, 3)
            obs, fresh = jax.vmap(with_roles)(step.obs, features), mind[2] == 0
            seen = (obs, step.avail, step.world if self.mixer.uses_world else step.world[:, :0], fresh)
            (memory, role, time), action, notes = self.decide(net, mind, obs, step.avail, choose, epsilon)
            state, step = jax.vmap(self.env.step)(jax.random.split(world, envs), state, action)
            dealt = jax.vmap(self.deal)(jax.random.split(deal, envs))
            features = jnp.where(step.done[:, None, None], dealt, features)
            after = (state, step, (memory, role, jnp.where(step.done, 0, time)), features)
            return after, ((*seen, role, notes["chosen"]), (action, step.reward.sum(-1), step.done))

        # One step more than is kept, so that the roles in force at the end are known.
        keys = jax.random.split(rest, self.env.horizon + 1)
        _, (seen, did) = jax.lax.scan(move, (state, step, self.idle(envs), features), keys)
        whole = RodeStretch(*seen, *(leaf[:-1] for leaf in did))
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), whole)

    def losses(self, params: dict[str, Any], target: dict[str, Any], batch: Any) -> dict[str, jax.Array]:
        """Return the losses of actions and of roles over a batch of stretches, leaves (B, ...); see `rode_losses`."""
        data: RodeStretch = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), batch)
        rest = self.net.rest(data.obs.shape[1], self.n)
        looks = [self.look(own["net"], rest, data.obs, data.fresh)[1] for own in (params, target)]
        return rode_losses(self.mixer, looks[0], looks[1], params, target, data, self.config.gamma, self.config.double)

    def loss(self, params: dict[str, Any], target: dict[str, Any], batch: Any) -> jax.Array:
        """Return the sum of both losses; see `losses`."""
        return sum(self.losses(params, target, batch).values(), jnp.float32(0))

    def learn(self, state: RodeState, key: jax.Array, found: bool) -> tuple[RodeState, dict[str, jax.Array]]:
        """Take one gradient step on a batch of the replay; before roles are found the action encoder takes one too."""
        batch = draw(state.replay, key, self.config.batch)

        def total(params: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
            parts = self.losses(params, state.target, batch)
            return parts["loss"] + parts["role_loss"], parts

        (_, figures), gradient = jax.value_and_grad(total, has_aux=True)(state.params)
        change, optimiser = self.optimiser.update(gradient, state.optimiser, state.params)
        params: Any = optax.apply_updates(state.params, change)
        state = state._replace(params=params, optimiser=optimiser)
        figures["effect_loss"] = jnp.float32(0)
        if not found:
            moves = moves_of(batch, self._own)
            effects, own, figures["effect_loss"] = self.effects.fit_batch(
                state.effects, state.effects_optimiser, moves, jax.random.fold_in(key, 1), self.config.effect_fits
            )
            state = state._replace(effects=effects, effects_optimiser=own)
        return state, figures

    def play_and_learn(self, state: RodeState, found: bool) -> tuple[RodeState, dict[str, jax.Array]]:
        """Play one stretch in every world, then learn; the target networks follow at their turn."""
        key, play, learn = jax.random.split(state.key, 3)
        stretch = self.collect(state.params["net"], play, self.epsilon(state.stretches - state.found))
        visits = state.visits
        if not found:
            visits = visits + count_actions(moves_of(stretch, self._own), self.env.actions)
        state = state._replace(
            key=key, replay=push(state.replay, stretch), stretches=state.stretches + 1, visits=visits
        )
        state, figures = jax.lax.scan(
            partial(self.learn, found=found), state, jax.random.split(learn, self.config.fits)
        )
        follow = (state.stretches - state.found) % self.config.target_every == 0
        target = jax.tree.map(lambda new, old: jnp.where(follow, new, old), state.params, state.target)
        allowed = held(state.params["net"]).mask[stretch.role] > 0
        turned = (stretch.role[:, 1:] != stretch.role[:, :-1]) & ~stretch.fresh[:, 1:, None]
        return state._replace(target=target), {
            **jax.tree.map(lambda values: values.mean(), figures),
            "reward_per_step": stretch.reward.mean(),
            "fallback": (~(stretch.avail & allowed).any(-1)).mean(),
            "use": jax.nn.one_hot(stretch.role, self.places).mean((0, 1, 2)),
            "switches": turned.mean(),
        }

    def update(self, state: Any, found: bool = True) -> tuple[Any, dict[str, jax.Array]]:
        """Train up to the next test, and take it: one update of the loop, before or after roles are `found`."""
        key, test = jax.random.split(state.key)
        state, figures = jax.lax.scan(
            lambda carry, _: self.play_and_learn(carry, found), state._replace(key=key), length=self.per_test
        )
        played = evaluate(self.env, self.policy(state.params), test, self.config.test_episodes)
        return state, {
            **jax.tree.map(lambda values: values.mean(0), figures),
            "epsilon": self.epsilon(state.stretches - state.found),
            "return": played.returns.mean(),
            "agent_return": played.agent_returns.mean(0),
            "events": played.events.mean(0),
            "lazy": lazy_agent_index(played.events),
            "length": played.length.mean(),
        }

    def fix_roles(self, state: RodeState, seeds: Sequence[int]) -> RodeState:
        """Find each seed's roles from its action latents, and freeze both; the targets are copied at once.

        Args:
            state: Leaves (S, ...).
            seeds: S numbers; they decide the control's deal alone.

        Raises:
            UserError: If an action was tried too seldom, or clusters or clean-up are refused.
        """
        latents = np.asarray(jax.vmap(self.effects.latents)(state.effects))
        visits, config = np.asarray(state.visits), self.config
        found = []
        for at, seed in enumerate(seeds):
            deal = derive_seed("rode-shuffle", seed) if config.labels == "shuffled" else None
            spec = discover_roles(
                latents[at], config.clusters, rule=config.rule, visits=visits[at], minimum=config.minimum,
                force=config.force, shuffle=deal,
            )  # fmt: skip
            found.append(self.fill(spec, latents[at]))
        roles = Roles(*(jnp.stack(leaves) for leaves in zip(*found, strict=True)))
        params = {**state.params, "net": with_held(state.params["net"], roles)}
        return state._replace(params=params, target=params, found=state.stretches)

    def fill(self, spec: RoleSpec, latents: Any) -> Roles:
        """Put roles into the networks' places.

        Raises:
            UserError: If there are more roles than places.
        """
        many = len(spec.mask)
        if many > self.places:
            raise UserError(
                f"the clean-up rule made {many} roles of {self.config.clusters} clusters, there are places for "
                f"{self.places}; raise clusters or return fewer roles."
            )
        empty = ((0, self.places - many), (0, 0))
        mask, latent = np.pad(spec.mask.astype(np.float32), empty), np.pad(spec.latent, empty)
        real = (np.arange(self.places) < many).astype(np.float32)
        return Roles(*(jnp.asarray(leaf, jnp.float32) for leaf in (mask, latent, real, latents)))

    def spec(self, params: Any) -> RoleSpec:
        """Return the roles that one seed's parameters hold."""
        roles = jax.device_get(held(params["net"]))
        many = int(roles.real.sum())
        return RoleSpec(np.asarray(roles.mask[:many]) > 0, np.asarray(roles.latent[:many]))

    def policy(self, params: Any, epsilon: float = 0.0) -> Policy:
        """Return the greedy team; its notes hold each agent's `role` and where its role had no action, `fallback`."""

        def start(key: jax.Array) -> Any:
            return self.idle(1), self.deal(key)

        def act(carry: Any, step: Step, key: jax.Array) -> tuple[Any, jax.Array, dict[str, Any]]:
            mind, features = carry
            obs = with_roles(step.obs, features)
            mind, action, notes = self.decide(params["net"], mind, obs[None], step.avail[None], key, epsilon)
            return (mind, features), action[0], {name: notes[name][0] for name in ("role", "fallback")}

        return Policy(start, act)


def _groups(params: dict[str, Any]) -> Any:
    """Label the parameters: roles and latents are kept."""

    def label(path: Any, _: Any) -> str:
        return "kept" if any(getattr(part, "key", "") == "roles" for part in path) else "learnt"

    return jax.tree_util.tree_map_with_path(label, params)


__all__ = ["RodeLearner", "RodeState"]
