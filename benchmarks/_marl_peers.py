"""What `marl.py` compares with: JaxMARL's baseline scripts, and BenchMARL.

Their code is not part of this repository. `ROLECRAFT_JAXMARL` names a checkout of JaxMARL (its `baselines` folder is
not in the package); the scripts are loaded from there as they are. `ROLECRAFT_PEERS` names folders with packages that
they or BenchMARL need and the environment lacks (distrax, flashbax, hydra-core, wandb; benchmarl with the torchrl that
it asks for, vmas and mpe2).
"""

from __future__ import annotations

import importlib.util
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from _one_core import Compiled, Done, Side, clocked

sys.path += [
    folder for folder in os.environ.get("ROLECRAFT_PEERS", "").split(os.pathsep) if folder and folder not in sys.path
]

WORLD, ENVS, LENGTH = "MPE_simple_spread_v3", 8, 26
"""JaxMARL's MPE ends an episode after its 26th step."""
HIDDEN, BATCH, BUFFER = 64, 32, 5000
"""Units of a layer; episodes of a gradient step, and in the replay."""
PPO_ENVS, PPO_STEPS, PPO_EPOCHS, PPO_PARTS = 16, 128, 4, 4
JAXMARL_CONFIG = {
    "ENV_NAME": WORLD, "ENV_KWARGS": {}, "MAX_GRAD_NORM": 25, "GAMMA": 0.9, "LR": 5e-3, "WANDB_MODE": "disabled",
    "NUM_ENVS": ENVS, "NUM_STEPS": LENGTH, "HIDDEN_SIZE": HIDDEN, "BUFFER_SIZE": BUFFER, "BUFFER_BATCH_SIZE": BATCH,
    "NUM_EPOCHS": 1, "EPS_START": 1.0, "EPS_FINISH": 0.05, "EPS_DECAY": 0.1, "TARGET_UPDATE_INTERVAL": 200, "TAU": 1.0,
    "LR_LINEAR_DECAY": True, "LEARNING_STARTS": 0, "TEST_DURING_TRAINING": False, "TEST_NUM_ENVS": ENVS,
}  # fmt: skip
"""Of `ql_rnn_mpe.yaml`, but that learning starts at once and nothing is evaluated."""
JAXMARL_PPO = {
    "ENV_NAME": WORLD, "ENV_KWARGS": {}, "MAX_GRAD_NORM": 0.5, "GAMMA": 0.99, "LR": 2.5e-4, "NUM_ENVS": PPO_ENVS,
    "NUM_STEPS": PPO_STEPS, "UPDATE_EPOCHS": PPO_EPOCHS, "NUM_MINIBATCHES": PPO_PARTS, "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2, "ENT_COEF": 0.01, "VF_COEF": 0.5, "ACTIVATION": "tanh", "ANNEAL_LR": True,
}  # fmt: skip
"""Of `ippo_ff_mpe.yaml`."""


def missing_jaxmarl() -> str:
    """Say why JaxMARL's scripts cannot be timed; empty where they can."""
    folder = os.environ.get("ROLECRAFT_JAXMARL", "")
    if not folder:
        return "ROLECRAFT_JAXMARL names no checkout of JaxMARL"
    if not (Path(folder) / "baselines").is_dir():
        return f"{folder} has no folder baselines"
    return _unimportable("distrax", "flashbax", "hydra", "omegaconf", "wandb")


def missing_benchmarl() -> str:
    """Say why BenchMARL cannot be timed; empty where it can."""
    return _unimportable("torch", "torchrl", "vmas", "mpe2", "benchmarl")


def _unimportable(*names: str) -> str:
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    return f"cannot import {', '.join(absent)}; see ROLECRAFT_PEERS" if absent else ""


def _script(name: str) -> Any:
    path = Path(os.environ["ROLECRAFT_JAXMARL"]) / "baselines" / name
    spec = importlib.util.spec_from_file_location(f"jaxmarl_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with redirect_stdout(io.StringIO()):
        spec.loader.exec_module(module)
    return module


class _Script:
    """A script's whole training as one compiled program over seeds; the peer's own way to run it."""

    def __init__(self, train: Callable[[Any], Any], seeds: int, steps: int) -> None:
        import jax

        self._seeds, self._steps = seeds, steps

        def weights(keys: Any) -> Any:
            return jax.vmap(train)(keys)["runner_state"][0].params

        with redirect_stdout(io.StringIO()):
            self._run = Compiled(weights, self._keys(0))
        self.seconds = self._run.seconds

    def _keys(self, number: int) -> Any:
        import jax

        return jax.random.split(jax.random.PRNGKey(number), self._seeds)

    def __call__(self, number: int) -> Done:
        """Train anew."""
        keys = self._keys(number)
        return clocked(lambda: self._run(keys), self._steps * self._seeds)


def jaxmarl_vdn(updates: int, seeds: int, network: Any = None) -> _Script:
    """Return JaxMARL's recurrent VDN; `network` takes the place of its network's class."""
    script = _script("QLearning/vdn_rnn.py")
    if network is not None:
        script.RNNQNetwork = network(script)
    steps = updates * ENVS * LENGTH
    env = script.MPELogWrapper(script.make(WORLD))
    return _Script(script.make_train({**JAXMARL_CONFIG, "TOTAL_TIMESTEPS": steps}, env), seeds, steps)


def jaxmarl_ippo(updates: int, seeds: int) -> _Script:
    """Return JaxMARL's feed-forward IPPO."""
    script = _script("IPPO/ippo_ff_mpe.py")
    steps = updates * PPO_ENVS * PPO_STEPS
    return _Script(script.make_train({**JAXMARL_PPO, "TOTAL_TIMESTEPS": steps}), seeds, steps)


def deeper(script: Any) -> Any:
    """Return JaxMARL's network with what ours has more: a layer after the recurrent one, and a dueling head."""
    import flax.linen as nn

    class Deeper(nn.Module):
        action_dim: int
        hidden_dim: int

        @nn.compact
        def __call__(self, hidden: Any, obs: Any, dones: Any) -> Any:
            x = nn.relu(nn.Dense(self.hidden_dim)(obs))
            hidden, x = script.ScannedRNN()(hidden, (x, dones))
            x = nn.relu(nn.Dense(self.hidden_dim)(x))
            advantage = nn.Dense(self.action_dim)(x)
            return hidden, nn.Dense(1)(x) + advantage - advantage.mean(-1, keepdims=True)

    return Deeper


def benchmarl(algorithm: str, world: str, iterations: int, warmup: int = 2) -> Side:
    """Return BenchMARL's training on simple_spread: `vdn`, `iql` or `ippo`, in `vmas` or `mpe2` (PettingZoo's MPE).

    An iteration collects and learns; those after the first `warmup` are timed, from the end of one iteration's training
    to the end of another's. Nothing is evaluated, logged or saved.
    """

    def side(number: int) -> Done:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            experiment, marks = _experiment(algorithm, world, iterations + warmup, number, folder)
            experiment.run()
        (wall, cpu), (last_wall, last_cpu) = marks[warmup - 1], marks[-1]
        frames = PPO_ENVS * PPO_STEPS if algorithm == "ippo" else ENVS * LENGTH
        return Done(frames * iterations, last_wall - wall, last_cpu - cpu)

    return side


def _task(world: str) -> Any:
    from benchmarl.environments import PettingZooTask, VmasTask

    if world == "vmas":
        task = VmasTask.SIMPLE_SPREAD.get_from_yaml()
        task.config["max_steps"] = LENGTH
        return task
    import mpe2
    from mpe2 import simple_spread_v3

    # PettingZoo's MPE is a package of its own now; TorchRL looks for it where it was.
    places = ModuleType("pettingzoo.utils.all_modules")
    places.all_environments = {"mpe/simple_spread_v3": simple_spread_v3}  # type: ignore[attr-defined]
    sys.modules.update({"pettingzoo.mpe": mpe2, places.__name__: places})
    task = PettingZooTask.SIMPLE_SPREAD.get_from_yaml()
    task.config["max_cycles"] = LENGTH
    return task


def _experiment(
    algorithm: str, world: str, iterations: int, seed: int, folder: str
) -> tuple[Any, list[tuple[float, float]]]:
    import torch
    from benchmarl.algorithms import IppoConfig, IqlConfig, VdnConfig
    from benchmarl.experiment import Callback, Experiment, ExperimentConfig
    from benchmarl.models import GruConfig, MlpConfig

    marks: list[tuple[float, float]] = []

    class Clock(Callback):  # type: ignore[misc]
        def on_train_end(self, *_: Any) -> None:
            marks.append((time.perf_counter(), time.process_time()))

        def __reduce__(self) -> Any:  # the experiment pickles its callbacks, and this class has no importable name
            return dict, ()

    config = ExperimentConfig.get_from_yaml()
    common: dict[str, Any] = {
        "max_n_iters": iterations, "max_n_frames": None, "prefer_continuous_actions": False, "evaluation": False,
        "render": False, "loggers": [], "create_json": False, "save_folder": folder, "checkpoint_at_end": False,
        "soft_target_update": False,
    }  # fmt: skip
    on_policy = {
        "on_policy_collected_frames_per_batch": PPO_ENVS * PPO_STEPS, "on_policy_n_envs_per_worker": PPO_ENVS,
        "on_policy_n_minibatch_iters": PPO_EPOCHS, "on_policy_minibatch_size": PPO_ENVS * PPO_STEPS // PPO_PARTS,
    }  # fmt: skip
    off_policy = {
        "off_policy_collected_frames_per_batch": ENVS * LENGTH, "off_policy_n_envs_per_worker": ENVS,
        "off_policy_n_optimizer_steps": 1, "off_policy_train_batch_size": BATCH * LENGTH,
        "off_policy_memory_size": BUFFER * LENGTH, "hard_target_update_frequency": 200,
    }  # fmt: skip
    for name, value in {**common, **on_policy, **off_policy}.items():
        setattr(config, name, value)
    linear = {"activation_class": torch.nn.Tanh, "layer_class": torch.nn.Linear}
    wide = MlpConfig(num_cells=[HIDDEN, HIDDEN], **linear)
    if algorithm != "ippo":
        model = GruConfig(
            hidden_size=HIDDEN, n_layers=1, bias=True, dropout=0.0, compile=False, mlp_num_cells=[HIDDEN],
            mlp_activation_class=torch.nn.ReLU, mlp_layer_class=torch.nn.Linear,
        )  # fmt: skip
    algorithms = {"ippo": IppoConfig, "vdn": VdnConfig, "iql": IqlConfig}
    made = Experiment(
        task=_task(world), algorithm_config=algorithms[algorithm].get_from_yaml(), critic_model_config=wide, seed=seed,
        model_config=wide if algorithm == "ippo" else model, config=config, callbacks=[Clock()],
    )  # fmt: skip
    return made, marks
