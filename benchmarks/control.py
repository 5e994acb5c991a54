"""Control: plans sampled per second, and all-goals updates per second, beside straightforward implementations.

Sampling: Decision Diffuser's planner draws plans of 16 states through all its 20 denoising steps, conditional on one
return (untrained weights; what is drawn does not matter for the time). Ours is one compiled program of all steps. The
peers are loops in Python over the same steps, with the same weights: JAX run operation by operation, JAX with the
network compiled and the loop around it not, and PyTorch run eagerly on its own convolutions. Before anything is timed,
all of them must draw the same plans from the same noise.

All goals: LEO's gradient for every goal of a 16 x 16 grid from one pass of its network, beside the same gradient by
relabelling, which runs the network anew for every pair of transition and goal (their values and gradients must agree),
and a whole update (rollout, targets and gradient steps) beside that of a goal-conditioned network with all goals as
rows of its batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

from _entries import Entry
from _one_core import Compiled, Side, compared, often, one_thread, turns

STATES, ASKED = 4, 1
"""Numbers in a state, and in a condition."""


class Sampling:
    """A batch of plans drawn by our sampler and by three loops in Python.

    Args:
        plans: Drawn at once.
    """

    def __init__(self, plans: int) -> None:
        import jax
        from jax import numpy as jnp

        from rolecraft.control._diffusion_ddpm import cosine_schedule
        from rolecraft.control._diffusion_planner import PlannerConfig, _init, _sampler

        self.config = PlannerConfig()
        self.plans, self.steps = plans, self.config.steps
        self.schedule = cosine_schedule(self.steps)
        params = _init(self.config, jax.random.key(0), STATES, ASKED, 2)
        draw = np.random.default_rng(0)
        self.params = jax.tree.map(lambda leaf: jnp.asarray(leaf + 0.05 * draw.normal(size=leaf.shape)), params)
        self.first = draw.uniform(-1, 1, (plans, STATES)).astype(np.float32)
        self.asked = draw.uniform(size=(plans, 1, ASKED)).astype(np.float32)
        sampler = _sampler(self.config, "conditional")
        ones = np.ones((plans, 1), np.float32)
        self.compiled = Compiled(lambda key: sampler(self.params, key, self.first, self.asked, ones), jax.random.key(0))

    def ours(self, number: int) -> Any:
        """Draw by our sampler."""
        import jax

        return self.compiled(jax.random.key(number))

    def noise(self, number: int) -> list[np.ndarray[Any, Any]]:
        """Return the normal noise of the start and of every step, as our sampler draws it."""
        import jax

        shape = (self.plans, self.config.horizon, STATES)
        first, rest = jax.random.split(jax.random.key(number))
        keys = [first, *jax.random.split(rest, self.steps)]
        return [np.array(jax.random.normal(key, shape)) for key in keys]

    def loop(self, noise: list[Any], network: Callable[[Any, int], Any], kind: Any) -> Any:
        """Draw step by step; `kind` is the array library, jax.numpy or torch."""
        of = {name: np.asarray(getattr(self.schedule, name)).tolist() for name in self.schedule._fields}
        scale = self.config.temperature
        x = scale * noise[0]
        first = kind.asarray(self.first)
        for k, drawn in zip(reversed(range(self.steps)), noise[1:], strict=True):
            x = _held(x, first)
            bar = of["alpha_bar"][k]
            data = kind.clip((x - (1 - bar) ** 0.5 * network(x, k)) / bar**0.5, -1.0, 1.0)
            x = of["posterior_data"][k] * data + of["posterior_noisy"][k] * x + scale * of["posterior_std"][k] * drawn
        return _held(x, first)

    def peers(self) -> dict[str, Callable[[list[Any]], Any]]:
        """Return the loops, each from noise to plans."""
        import jax
        import torch
        from jax import numpy as jnp

        from _torch_unet import TorchUnet

        unet, weights = self.config.unet, self.params["unet"]
        asked, keep = jnp.asarray(self.asked[:, 0]), jnp.ones(self.plans)

        def apply(x: Any, level: Any) -> Any:
            return unet.apply(weights, x, level, asked, keep)

        def eager(x: Any, k: int) -> Any:
            return apply(x, jnp.full(self.plans, float(k)))

        quick = jax.jit(apply)
        theirs = TorchUnet(weights["params"], self.config.width, self.config.multipliers, STATES)
        torch_asked, torch_keep = torch.from_numpy(self.asked[:, 0]), torch.ones(self.plans)

        def torch_network(x: Any, k: int) -> Any:
            return theirs(x, torch.full((self.plans,), float(k)), torch_asked, torch_keep)

        def torch_loop(noise: list[Any]) -> Any:
            with torch.inference_mode():
                return self.loop([torch.from_numpy(each) for each in noise], torch_network, torch)

        def jax_loop(network: Callable[[Any, int], Any]) -> Callable[[list[Any]], Any]:
            return lambda noise: jax.block_until_ready(self.loop([jnp.asarray(z) for z in noise], network, jnp))

        return {
            "a loop in JAX, operation by operation": jax_loop(eager),
            "a loop in JAX, its network compiled": jax_loop(lambda x, k: quick(x, jnp.full(self.plans, float(k)))),
            "a loop in PyTorch": torch_loop,
        }


def _held(x: Any, first: Any) -> Any:
    """Put the known first state into plans, as a loop in either library would."""
    if hasattr(x, "at"):
        return x.at[:, 0].set(first)
    x = x.clone()
    x[:, 0] = first
    return x


def sampling(plans: int, rounds: int) -> list[Entry]:
    """Compare all samplers on batches of so many plans."""
    import torch

    case, found = Sampling(plans), list[Entry]()
    noise = case.noise(0)
    expected = np.asarray(case.ours(0))
    ours = often(lambda: case.ours(0), plans)
    for name, loop in case.peers().items():
        gap = float(np.abs(np.asarray(loop(noise)) - expected).max())
        if gap > 1e-3:
            raise SystemExit(f"control: {name} draws other plans than ours (they differ by {gap:.2g}).")
        done = turns({"ours": ours, "peer": often(partial(loop, noise), plans)}, rounds)
        found.append(
            compared(
                f"control: sampling plans, {plans} at once, against {name}",
                "plans/s", done["ours"], done["peer"],
                f"{case.steps} steps of a temporal U-Net of width {case.config.width} over 16 states of {STATES} "
                f"numbers, noise drawn beforehand for the peer; torch {torch.__version__}; compiling ours took "
                f"{case.compiled.seconds:.1f} s, apart",
            )
        )  # fmt: skip
    return found


def all_goals(rounds: int, size: int, minibatch: int) -> list[Entry]:
    """Compare LEO's gradient, and its whole update, with relabelling."""
    import jax

    from rolecraft.control import GoalLearner, LeoConfig, goal_grid
    from rolecraft.control._leo import relabelled_loss

    env, goals, _ = goal_grid(size)
    config = LeoConfig(envs=16, steps=8, epochs=1, minibatch=minibatch, updates=100, student_minibatch=minibatch)
    leo, relabel = (GoalLearner(env, goals, method, config) for method in ("leo", "relabel"))
    state = jax.jit(leo.start)(jax.random.key(0))
    play = jax.jit(lambda state: leo.batch(state.params, leo._play(state, state.key)[1], state.key, state.seen))
    batch = jax.tree.map(lambda leaf: leaf[:minibatch], play(state))
    ours = Compiled(jax.value_and_grad(lambda params: leo.loss(params, batch)), state.params)
    peer = Compiled(jax.value_and_grad(lambda params: relabelled_loss(leo, params, batch)), state.params)
    pairs = zip(jax.tree.leaves(ours(state.params)), jax.tree.leaves(peer(state.params)), strict=True)
    if not all(np.allclose(a, b, rtol=1e-3, atol=1e-6) for a, b in pairs):
        raise SystemExit("control: relabelling gives another gradient than LEO.")
    what = f"{len(goals)} goals, {minibatch} transitions, two layers of {config.widths[0]}"
    done = turns({"ours": often(lambda: ours(state.params), 1), "peer": often(lambda: peer(state.params), 1)}, rounds)
    found = [
        compared(
            f"control: gradient for all goals, {len(goals)} goals, against relabelling", "gradients/s",
            done["ours"], done["peer"], f"{what}; the same value and gradient, both compiled",
        )
    ]  # fmt: skip
    each = {learner.method: _update(learner) for learner in (leo, relabel)}
    done = turns({name: side for name, (side, _) in each.items()}, rounds)
    seconds = ", ".join(f"{took:.1f} s ({name})" for name, (_, took) in each.items())
    found.append(
        compared(
            f"control: rollout and update for all goals, {len(goals)} goals, against a row of the batch per goal",
            "updates/s", done["leo"], done["relabel"],
            f"{what}, {config.envs} worlds of {config.steps} steps, {config.epochs} pass; methods leo and relabel of "
            f"GoalLearner; compiling took {seconds}, apart",
        )
    )  # fmt: skip
    return found


def _update(learner: Any) -> tuple[Side, float]:
    """Return a method's whole updates, and what compiling them took."""
    import jax

    state = jax.jit(learner.start)(jax.random.key(1))
    run = Compiled(lambda state: jax.lax.scan(lambda state, _: learner.update(state), state, length=4), state)
    return often(lambda: run(state), 4), run.seconds


def entries(quick: bool = False) -> list[Entry]:
    """Measure sampling and all-goals updates; a few minutes on one free core."""
    rounds, found = 2 if quick else 7, list[Entry]()
    with one_thread():
        for plans in (1, 64):
            found += sampling(plans, rounds)
        found += all_goals(rounds, 8 if quick else 16, 64)
    return found


if __name__ == "__main__":
    for line in entries(quick="--quick" in sys.argv):
        print(line, flush=True)
