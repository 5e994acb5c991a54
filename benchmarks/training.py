"""Training: tokens per second of rollout and update, side by side with TRL's GRPO.

Both train a transformer of the same sizes (transformers' Llama, float32, two threads) on the same one-turn world: a row
of words is shown, and the reply earns the share of its words that were among them. What is equal: prompts of one
length, rows per iteration, rows per prompt, longest reply, temperature 1, AdamW, one pass over the rows as one step,
no KL, advantages of a prompt's group scaled by its deviation, the ratio's clip. What is not: each draws its own
replies, so that lengths differ; a token counts where it was drawn, on either side. Ours scores every row before the
update as well, checks every number of the batch, and keeps an episode per row with what was seen, said and earned; TRL
reads rows from a data set in memory and takes its first iteration's log-probabilities from the update itself. TRL runs
without gradient checkpointing, which it switches on unless told not to, and logs nothing.

`long replies` has 16 rows of one prompt: replies differ, so that no row is equal to another, and prompts share their
work in ours (TRL computes a prompt once per row). `two per prompt` has hardly anything to share. `one word` is the case
of small games: few prompts and replies of two tokens at most, so that most rows are equal, and ours computes equal rows
once. `wider model` has more arithmetic per token, which is the same for both.

Iterations are timed in turns: ours, TRL's, ours, ...; the first ones of each turn are not counted.
"""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

from _entries import Entry, entry
from rolecraft.worlds import World

WORDS = tuple(f"w{number}" for number in range(59))
WARMUP, STEPS = 2, 8
"""Iterations of a turn that are not counted, and that are."""


class ShownWords(World):
    """A seat sees some words and writes; it earns the share of its words that it saw."""

    name = "shown-words"
    agents = ("ann",)

    def __init__(self, shown: int = 12, kinds: int = 0) -> None:
        """`kinds`: how many different rows of words there are; 0: no end of them."""
        self._shown, self._kinds = shown, kinds
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Draw the words."""
        rng = np.random.default_rng(seed % self._kinds if self._kinds else seed)
        self.words = tuple(WORDS[number] for number in rng.integers(len(WORDS), size=self._shown))
        self._said: str | None = None

    @property
    def acting(self) -> tuple[str, ...]:
        """Whose turn it is."""
        return self.agents if self._said is None else ()

    def observe(self, agent: str) -> str:
        """Return the words."""
        return " ".join(self.words)

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Let any text be said once."""
        return None if self.acting else ()

    def state(self) -> Mapping[str, Any]:
        """Return the words and what was said."""
        return {"words": self.words, "said": self._said}

    def rewards(self) -> Mapping[str, float]:
        """Return the share of known words."""
        return {"ann": share(self._said or "", self.words)}

    def _apply(self, actions: Mapping[str, str]) -> None:
        self._said = actions["ann"]


def share(said: str, shown: Sequence[str]) -> float:
    found = said.split()
    return sum(word in shown for word in found) / len(found) if found else 0.0


@dataclass(frozen=True)
class Case:
    """What both train on."""

    name: str
    rows: int = 128
    group: int = 16
    tokens: int = 16
    kinds: int = 0
    layers: int = 2
    hidden: int = 64

    def world(self) -> ShownWords:
        """Make the world."""
        return ShownWords(kinds=self.kinds)

    def policy(self, seed: int) -> Any:
        """Make an untrained policy."""
        from rolecraft.learning.policy import WordCodec, tiny_policy

        codec = WordCodec(("ann", *WORDS))
        sizes = {"layers": self.layers, "hidden": self.hidden, "heads": 4}
        return tiny_policy(codec, **sizes, seed=seed, max_tokens=self.tokens)


CASES = (
    Case("long replies"),
    Case("two per prompt", group=2),
    Case("one word", tokens=2, kinds=6),
    Case("wider model", layers=4, hidden=256),
)


def ours(case: Case, seed: int, steps: int) -> float:
    """Return tokens per second of our trainer."""
    from rolecraft.learning.credit import make_rule
    from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer

    # TRL does not score again either where an update follows the rollout at once.
    monitor = MonitorConfig(action="off")
    config = TrainConfig(episodes=case.rows, group=case.group, lr=1e-3, rescore=False, monitor=monitor)
    trainer = Trainer(case.world, case.policy(seed), make_rule("grpo"), config, seed=seed)
    for _ in range(WARMUP):
        trainer.step()
    start = time.perf_counter()
    tokens = sum(trainer.step().figures["tokens"] for _ in range(steps))
    return float(tokens / (time.perf_counter() - start))


def trl(case: Case, seed: int, steps: int) -> float:
    """Return tokens per second of TRL's trainer."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from rolecraft.learning import word_tokenizer

    policy = case.policy(seed)
    codec, drawn = policy.codec, []
    tokenizer = word_tokenizer(codec)

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Notes when each iteration begins and ends."""

        def __init__(self) -> None:
            self.begun: list[float] = []
            self.ended: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.begun.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.ended.append(time.perf_counter())

    def earned(completions: list[str], completion_ids: list[list[int]], seed: list[int], **_: Any) -> list[float]:
        drawn.append(sum(map(len, completion_ids)))
        found, world = [], case.world()
        for number, said in zip(seed, completions, strict=True):
            world.reset(number)
            world.act({"ann": said})
            found.append(world.rewards()["ann"])
        return found

    def prompts() -> Iterator[dict[str, Any]]:
        world = case.world()
        for number in range(case.rows // case.group * (WARMUP + steps)):
            world.reset(number)
            tokens = codec.prompt("ann", None, world.observe("ann"))
            yield {"prompt": " ".join(codec.tokens[token] for token in tokens), "seed": number}

    with tempfile.TemporaryDirectory() as folder:
        arguments = GRPOConfig(
            folder,
            per_device_train_batch_size=case.rows,
            num_generations=case.group,
            max_completion_length=case.tokens,
            max_steps=WARMUP + steps,
            learning_rate=1e-3,
            max_grad_norm=1.0,
            beta=0.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=seed,
        )
        made = GRPOTrainer(
            policy.network.model,
            earned,
            arguments,
            Dataset.from_list(list(prompts())),
            processing_class=tokenizer,
            callbacks=[clock := Clock()],
        )
        made.remove_callback(PrinterCallback)
        made.train()
    return sum(drawn[WARMUP:]) / (clock.ended[-1] - clock.begun[WARMUP])


def entries(quick: bool = False) -> list[Entry]:
    """Measure every case."""
    import torch

    rounds = 3 if quick else 7
    torch.set_num_threads(2)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in CASES:
            steps = STEPS // 2 if quick or case.hidden > 64 else STEPS
            rates = _turns([ours, trl], case, rounds, steps)
            found.append(
                entry(
                    f"training: rollout and update, {case.name}",
                    "tokens/s",
                    *rates,
                    f"{case.rows} rows, {case.group} per prompt, replies of at most {case.tokens} tokens, Llama of "
                    f"{case.layers} layers of {case.hidden}, two threads; peer: GRPO of TRL {_version()}; "
                    f"{rounds} turns of {steps} iterations",
                )
            )
    return found


def _turns(
    sides: Sequence[Callable[[Case, int, int], float]], case: Case, rounds: int, steps: int
) -> list[list[float]]:
    rates: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        for side, found in zip(sides, rates, strict=True):
            found.append(side(case, number + 1, steps))
    return rates


def _version() -> str:
    from importlib.metadata import version

    return version("trl")


if __name__ == "__main__":
    for found in entries(quick="--quick" in sys.argv):
        print(found)
