"""All-goals learning and what it is compared with: one trainer, six methods (LEO, arXiv 2605.23551).

`pqn` learns about the commanded goal only, `her` also about two relabelled goals per transition, `relabel` about all
goals, each as a row of the batch through a goal-conditioned network; `leo` about all goals by one pass through a
network with a row of values per goal. `dual` trains LEO as a teacher that never acts on the data of a PPO student,
which is also pulled to the teacher's actions; `ppo` is that student alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._jax import check_memory, parameter_count
from rolecraft.control._array_env import ArrayEnv, reset_all, step_all
from rolecraft.control._goals import GoalCounts, GoalSet, sample_achieved, sample_goals
from rolecraft.control._ppo import ActorCritic, PPOBatch, generalised_advantages, ppo_loss
from rolecraft.control._pqn import (
    AllGoalsQ,
    GoalQ,
    apply,
    check_minibatch,
    epsilon_greedy,
    fit,
    half_square,
    one_step_targets,
    optimiser,
)
from rolecraft.errors import UserError, did_you_mean

Array = jax.Array
METHODS = ("pqn", "her", "relabel", "leo", "ppo", "dual")
VALUED, ACTORS = ("pqn", "her", "relabel", "leo", "dual"), ("ppo", "dual")


@dataclass(frozen=True)
class LeoConfig:
    """Sizes and rates of a training; the paper's values are those on Craftax.

    Raises:
        UserError: If a size or rate is out of range, or a minibatch does not divide envs * steps.
    """

    envs: int = 16
    """Paper: 1024."""
    steps: int = 32
    """Per rollout. Paper: 32 (64 with PPO)."""
    updates: int = 400
    """Rollouts. Paper: 1e9 steps in all."""
    widths: tuple[int, ...] = (128, 128)
    """Paper: four of 1024, behind a convolution over the map."""
    lr: float = 1e-3
    """At the start, linearly to 0. Paper: 2e-4."""
    gamma: float = 0.99
    """Paper: 0.99."""
    epochs: int = 2
    """Paper: 2."""
    minibatch: int = 128
    """Transitions (each with all its goals) per gradient step. Paper: 512."""
    epsilon: tuple[float, float, float] = (0.2, 0.01, 0.2)
    """Exploration at the start, at the end, and the share of updates in between. Paper: 0.2, 0.01, 0.2."""
    only_seen: bool = True
    """Command only goals that were achieved at least once in training. Paper: yes."""
    resets: int = 0
    """Fresh episodes made per step; 0 makes one per environment."""
    relabelled: tuple[int, int] = (1, 1)
    """Goals per transition that `her` adds: drawn as commands are, and drawn among those achieved. Paper: 1 and 1."""
    student_gamma: float = 0.995
    """Of the PPO student. Paper: 0.995."""
    student_minibatch: int = 256
    """Paper: 2048."""
    student_epochs: int = 1
    """Paper: 1."""
    clip: float = 0.2
    """Paper: 0.2."""
    entropy: float = 0.005
    """Paper: 0.005."""
    value: float = 0.5
    """Paper: 0.5."""
    lam: float = 0.95
    """Paper: 0.95."""
    distil: float = 0.1
    """Weight of the teacher's actions, annealed linearly to 0. Paper: 0.1."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        sizes = (self.envs, self.steps, self.updates, self.epochs, self.student_epochs, *self.widths)
        if min(sizes) < 1 or not self.widths or min(self.relabelled) < 0 or self.resets < 0:
            raise UserError(f"envs, steps, updates, epochs and widths must be at least 1, got {sizes}.")
        if not 0 < self.gamma < 1 or not 0 < self.student_gamma < 1:
            raise UserError(
                f"gamma and student_gamma must lie between 0 and 1, got {self.gamma} and {self.student_gamma}: "
                "values of goals never achieved would not fall at 1."
            )
        if not all(0 <= rate <= 1 for rate in (*self.epsilon, self.lam)) or self.lr <= 0 or self.distil < 0:
            raise UserError("epsilon and lam must lie in [0, 1], lr above 0 and distil at 0 or above.")
        check_minibatch(self.envs * self.steps, self.minibatch)
        check_minibatch(self.envs * self.steps, self.student_minibatch)


class LeoState(NamedTuple):
    """All that training carries on; leaves that a method does not use are empty."""

    params: Any
    """Of the value network (the teacher, in `dual`)."""
    opt: Any
    student: Any
    student_opt: Any
    envs: Any
    obs: Array
    """(E, D)."""
    goal: Array
    """Commanded goals (E,)."""
    held: Array
    """Bool (E,): the goal held when it was commanded."""
    seen: Array
    """Bool (N,): achieved at least once so far."""
    counts: GoalCounts
    key: Array
    update: Array


class Rollout(NamedTuple):
    """T steps of E environments; leading axes (T, E)."""

    obs: Array
    action: Array
    reached: Array
    done: Array
    goal: Array
    achieved: Array
    """Bool (T, E, N)."""
    log_prob: Array
    advice: Array


@dataclass(frozen=True)
class GoalLearner:
    """A method on an environment with a goal set; its functions can be jitted and vmapped over states.

    Raises:
        UserError: If the method is unknown, or shapes of environment and goals do not fit.
    """

    env: ArrayEnv
    goals: GoalSet
    method: str
    config: LeoConfig

    def __post_init__(self) -> None:
        """Check all shapes before anything is compiled."""
        if self.method not in METHODS:
            near = did_you_mean(self.method, METHODS)
            raise UserError(f"there is no method {self.method!r}; expected one of {', '.join(METHODS)}.{near}")
        self.env.check()
        self.goals.check(np.zeros(self.env.observations, np.float32))
        sizes = jax.eval_shape(self.start, jax.random.key(0))
        head = self.config.widths[-1] * len(self.goals) * self.env.actions if self.all_goals else 0
        batch = self.config.envs * self.config.steps * len(self.goals) * 8
        rows = self.config.minibatch * len(self.goals) * max(self.config.widths) * 4 * 6
        check_memory(
            4 * 4 * parameter_count((sizes.params, sizes.student)) + batch + (rows if self.method == "relabel" else 0),
            f"{self.method} with {len(self.goals)} goals ({head} weights in the head)",
            "widths, minibatch or envs",
        )

    @property
    def all_goals(self) -> bool:
        """Whether the value network has a row per goal."""
        return self.method in ("leo", "dual")

    @property
    def network(self) -> AllGoalsQ | GoalQ:
        """The value network."""
        if self.all_goals:
            return AllGoalsQ(self.config.widths, len(self.goals), self.env.actions)
        return GoalQ(self.config.widths, self.env.actions)

    @property
    def actor(self) -> ActorCritic:
        """The student."""
        return ActorCritic(self.config.widths, self.env.actions)

    def start(self, key: Array) -> LeoState:
        """Return the state before the first update."""
        net_key, actor_key, env_key, goal_key, key = jax.random.split(key, 5)
        envs, obs = reset_all(self.env, env_key, self.config.envs)
        goal = sample_goals(goal_key, jnp.zeros(len(self.goals), bool), (self.config.envs,))
        shown = () if self.all_goals else (self.goals.goals[:1],)
        params = self.network.init(net_key, obs[:1], *shown) if self.method in VALUED else {}
        student = self.actor.init(actor_key, obs[:1], self.goals.goals[:1]) if self.method in ACTORS else {}
        return LeoState(
            params, self._tx().init(params), student, self._tx(student=True).init(student), envs, obs, goal,
            self._holds(obs, goal), jnp.zeros(len(self.goals), bool), GoalCounts.zeros(len(self.goals)), key,
            jnp.zeros((), jnp.int32),
        )  # fmt: skip

    def values(self, params: Any, obs: Array, goal: Array) -> Array:
        """Return the values (B, A) of observations (B, D) for goal indices (B,)."""
        if self.all_goals:
            every: Array = apply(self.network, params, obs)
            return every[jnp.arange(len(obs)), goal]
        values: Array = apply(self.network, params, obs, self.goals.goals[goal])
        return values

    def act(self, state: LeoState, obs: Array, goal: Array, key: Array, epsilon: Array) -> tuple[Array, Array, Array]:
        """Choose actions; return them (B,), their log-probabilities (B,), and the teacher's actions (B,)."""
        none = jnp.zeros(len(obs))
        if self.method in VALUED:
            q = self.values(state.params, obs, goal)
            if self.method != "dual":
                return epsilon_greedy(key, q, epsilon), none, none.astype(jnp.int32)
        logits, _ = apply(self.actor, state.student, obs, self.goals.goals[goal])
        action = jax.random.categorical(key, logits)
        log_prob = jax.nn.log_softmax(logits)[jnp.arange(len(obs)), action]
        return action, log_prob, q.argmax(-1) if self.method == "dual" else none.astype(jnp.int32)

    def update(self, state: LeoState) -> tuple[LeoState, Mapping[str, Array]]:
        """Play one rollout and learn from it."""
        key, play_key, goals_key, fit_key, student_key = jax.random.split(state.key, 5)
        state, seen = self._play(state, play_key)
        state = state._replace(key=key, seen=state.seen | seen.achieved.any((0, 1)))
        figures = {"seen": state.seen.mean(), "achieved": self._own(seen).mean()}
        if self.method in VALUED:
            batch = self.batch(state.params, seen, goals_key, state.seen)
            params, opt, loss = fit(
                self.loss, self._tx(), state.params, state.opt, batch, fit_key,
                epochs=self.config.epochs, minibatch=self.config.minibatch,
            )  # fmt: skip
            state, figures["loss"] = state._replace(params=params, opt=opt), loss
            figures["target"] = batch["targets"].mean()
        if self.method in ACTORS:
            state, figures["student_loss"] = self._teach(state, seen, student_key)
        return state._replace(update=state.update + 1), figures

    def batch(self, params: Any, seen: Rollout, key: Array, known: Array) -> dict[str, Array]:
        """Return the transitions of a rollout (T * E rows) with targets (rows, K) by the rollout-time network.

        Args:
            params: The rollout-time network; there is no other target network.
            seen: The rollout.
            key: Random key, of the goals that `her` draws.
            known: Goals that may be drawn (N,).
        """
        if self.all_goals:
            goals, own = None, seen.achieved
        else:
            goals = self._learnt_goals(seen, key, known)
            own = jnp.take_along_axis(seen.achieved, goals, -1)

        def best(step: tuple[Array, Array | None]) -> Array:
            reached, wanted = step
            return self._rows(params, reached, wanted).max(-1)

        # Step by step: for `relabel` the rows of a whole rollout would not fit into the cache.
        targets = one_step_targets(own, seen.done, jax.lax.map(best, (seen.reached, goals)), self.config.gamma)
        rows = {"obs": seen.obs, "action": seen.action, "targets": targets}
        rows |= {} if goals is None else {"goals": goals}
        return {name: x.reshape(-1, *x.shape[2:]) for name, x in rows.items()}

    def loss(self, params: Any, batch: Mapping[str, Array]) -> Array:
        """Return half the mean squared error of the taken actions' values over transitions and goals."""
        return half_square(self._rows(params, batch["obs"], batch.get("goals")), batch["action"], batch["targets"])

    def _rows(self, params: Any, obs: Array, goals: Array | None) -> Array:
        """Values (B, K, A): all goals by one pass, or each of the goals (B, K) as a row of its own."""
        values: Array
        if goals is None:
            values = apply(self.network, params, obs)
        else:
            wide = jnp.broadcast_to(obs[:, None], (*goals.shape, obs.shape[-1]))
            values = apply(self.network, params, wide, self.goals.goals[goals])
        return values

    def _learnt_goals(self, seen: Rollout, key: Array, known: Array) -> Array:
        """Goals (T, E, K) that a goal-conditioned network learns about at each transition."""
        own = seen.goal[..., None]
        if self.method == "relabel":
            return jnp.broadcast_to(jnp.arange(len(self.goals)), (*seen.goal.shape, len(self.goals)))
        if self.method == "pqn":
            return own
        random, achieved = self.config.relabelled
        draw_key, *keys = jax.random.split(key, 1 + achieved)
        drawn = sample_goals(draw_key, known, (*seen.goal.shape, random), only_seen=self.config.only_seen)
        reached = [sample_achieved(k, seen.achieved, seen.goal)[..., None] for k in keys]
        return jnp.concatenate([own, drawn, *reached], -1)

    def _holds(self, obs: Array, goal: Array) -> Array:
        return self.goals.achieved(obs, self.goals.goals)[jnp.arange(len(obs)), goal]

    @staticmethod
    def _own(seen: Rollout) -> Array:
        return jnp.take_along_axis(seen.achieved, seen.goal[..., None], -1)[..., 0]

    def _play(self, state: LeoState, key: Array) -> tuple[LeoState, Rollout]:
        config = self.config
        start, end, share = config.epsilon
        progress = jnp.clip(state.update / max(1.0, share * config.updates), 0, 1)
        epsilon = start + (end - start) * progress

        def step(carry: LeoState, key: Array) -> tuple[LeoState, Rollout]:
            act_key, env_key, goal_key = jax.random.split(key, 3)
            action, log_prob, advice = self.act(carry, carry.obs, carry.goal, act_key, epsilon)
            envs, reached, obs, _, done = step_all(self.env, env_key, carry.envs, action, config.resets or config.envs)
            achieved = self.goals.achieved(reached, self.goals.goals)
            own = achieved[jnp.arange(len(obs)), carry.goal]
            over = own | done
            drawn = sample_goals(goal_key, state.seen, carry.goal.shape, only_seen=config.only_seen)
            goal = jnp.where(over, drawn, carry.goal)
            after = carry._replace(
                envs=envs, obs=obs, goal=goal, held=jnp.where(over, self._holds(obs, goal), carry.held),
                counts=carry.counts.add(carry.goal, own, over, carry.held),
            )  # fmt: skip
            return after, Rollout(carry.obs, action, reached, done, carry.goal, achieved, log_prob, advice)

        return jax.lax.scan(step, state, jax.random.split(key, config.steps))

    def _teach(self, state: LeoState, seen: Rollout, key: Array) -> tuple[LeoState, Array]:
        config, shown = self.config, self.goals.goals[seen.goal]
        own = self._own(seen)
        _, values = apply(self.actor, state.student, seen.obs, shown)
        _, following = apply(self.actor, state.student, seen.reached, shown)
        advantages = generalised_advantages(
            own.astype(values.dtype), own | seen.done, values, following, config.student_gamma, config.lam
        )
        batch = PPOBatch(seen.obs, shown, seen.action, seen.log_prob, advantages, advantages + values, seen.advice)
        weight = config.distil * (1 - state.update / config.updates) if self.method == "dual" else jnp.zeros(())

        def loss(student: Any, part: PPOBatch) -> Array:
            logits, value = apply(self.actor, student, part.obs, part.goal)
            return ppo_loss(logits, value, part, weight, clip=config.clip, entropy=config.entropy, value=config.value)

        student, opt, found = fit(
            loss, self._tx(student=True), state.student, state.student_opt,
            jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch), key,
            epochs=config.student_epochs, minibatch=config.student_minibatch,
        )  # fmt: skip
        return state._replace(student=student, student_opt=opt), found

    def _tx(self, *, student: bool = False) -> Any:
        config = self.config
        epochs, minibatch = (
            (config.student_epochs, config.student_minibatch) if student else (config.epochs, config.minibatch)
        )
        return optimiser(config.lr, config.updates * epochs * (config.envs * config.steps // minibatch))


def evaluate_goals(learner: GoalLearner, state: LeoState, key: Array, repeats: int = 1) -> dict[str, Array]:
    """Command every goal from fresh starts, without exploration.

    Args:
        learner: The method.
        state: As training left it.
        key: Random key.
        repeats: Episodes per goal.

    Returns:
        `successes` and `trials` per goal (N,), where a goal that held at the start is no trial, and `held` (N,).
    """
    start_key, play_key = jax.random.split(key)
    goal = jnp.tile(jnp.arange(len(learner.goals)), repeats)
    envs, obs = reset_all(learner.env, start_key, len(goal))
    held = learner._holds(obs, goal)

    def step(carry: tuple[Any, Array, Array, Array], key: Array) -> tuple[tuple[Any, Array, Array, Array], None]:
        envs, obs, won, over = carry
        act_key, env_key = jax.random.split(key)
        action, _, _ = learner.act(state, obs, goal, act_key, jnp.zeros(()))
        keys = jax.random.split(env_key, len(goal))
        envs, obs, _, done = jax.vmap(learner.env.step)(keys, envs, action)
        won = won | (~over & learner._holds(obs, goal))
        return (envs, obs, won, over | done), None

    nobody = jnp.zeros(len(goal), bool)
    (_, _, won, _), _ = jax.lax.scan(step, (envs, obs, nobody, nobody), jax.random.split(play_key, learner.env.length))
    by_goal = [x.reshape(repeats, -1).sum(0) for x in (won & ~held, ~held, held)]
    return dict(zip(("successes", "trials", "held"), by_goal, strict=True))


def relabelled_loss(learner: GoalLearner, params: Any, batch: Mapping[str, Array]) -> Array:
    """Return LEO's loss as relabelling computes it: the network is run anew for every pair of transition and goal.

    Same value and gradient as `learner.loss`, N times the work; the straightforward implementation to compare with.

    Args:
        learner: Of method `leo`.
        params: Its network's.
        batch: As `GoalLearner.batch` returns it.
    """
    rows, goals = batch["targets"].shape
    obs = jnp.repeat(batch["obs"], goals, axis=0)
    wanted = jnp.tile(jnp.arange(goals), rows)
    values = learner.values(params, obs, wanted)[:, None]
    return half_square(values, jnp.repeat(batch["action"], goals), batch["targets"].reshape(-1, 1))
