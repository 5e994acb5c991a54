"""Throughput of the local engine side by side with its peers: `python benchmarks/throughput.py [--quick]`.

All sides run in one process, on the same weights and dtype, taking turns; ratios are medians over rounds. The grid is
32 roles x 4 strengths x 8 questions with 32 new tokens per cell and no early stop. The peers steer one (role, strength)
at a time, with the 8 questions as their batch; they are timed on a random subset of the (role, strength) pairs, drawn
anew each round, and compared in cells per second.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from _entries import Entry, entry
from rolecraft.conditioning import Intervention, LikelihoodMarginFilter, Steering, extract_directions
from rolecraft.models import Embedder, LocalModel, Sampling, chat
from rolecraft.models._cache import RowCache
from rolecraft.models._hooks import NEW
from rolecraft.roles import load_inventory

SITE, TOKENS, NORM = 15, 32, 20.0
STRENGTHS = (1.0, 1.5, 2.0, 2.5)
QUESTIONS = (
    "What does a good day look like for you?",
    "How do you decide whom to trust?",
    "What would you do with a free afternoon?",
    "Tell me about a mistake you made.",
    "What is worth arguing about?",
    "How should people deal with bad news?",
    "What do you think of cities?",
    "Is it better to plan or to improvise?",
)
GREEDY = Sampling(TOKENS, 0.0)
Row = tuple[int, float, int]
"""Role, strength, question."""


class Ours:
    """The engine: any rows together."""

    def __init__(self, model: LocalModel, vectors: np.ndarray, positions: Any) -> None:
        self.model, self.vectors, self.positions = model, vectors, positions

    def __call__(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """Return the new tokens of each row."""
        interventions = {
            (role, c): Intervention(self.vectors[role], c, SITE, positions=self.positions)
            for role, c in {(role, c) for role, c, _ in rows}
        }
        steering = Steering(tuple((interventions[role, c],) for role, c, _ in rows))
        return [r.token_ids for r in self.model.generate([chat(QUESTIONS[q]) for *_, q in rows], GREEDY, steering)]


class OneAtATime:
    """What both peers share: HF `generate` over the questions of one (role, strength)."""

    def __init__(self, model: LocalModel, vectors: np.ndarray) -> None:
        self.hf, self.tokenizer, self.vectors = model.model, model.tokenizer, vectors
        self.tokenizer.padding_side = "left"

    def __call__(self, rows: Sequence[Row]) -> list[tuple[int, ...]]:
        """Return the new tokens of each row."""
        result: dict[Row, tuple[int, ...]] = {}
        for role, c in dict.fromkeys((role, c) for role, c, _ in rows):
            cells = [row for row in rows if row[:2] == (role, c)]
            texts = [
                self.tokenizer.apply_chat_template(chat(QUESTIONS[q]), add_generation_prompt=True, tokenize=False)
                for *_, q in cells
            ]
            inputs = self.tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
            with torch.inference_mode():
                ids = self.steer(role, c, inputs)
            for cell, new in zip(cells, ids[:, inputs["input_ids"].shape[1] :].tolist(), strict=True):
                result[cell] = tuple(new)
        return [result[row] for row in rows]

    def steer(self, role: int, c: float, inputs: Any) -> torch.Tensor:
        """Return prompts and new tokens of one batch."""
        raise NotImplementedError


class PlainHook(OneAtATime):
    """A forward hook that adds at the last position, and HF `generate`."""

    def steer(self, role: int, c: float, inputs: Any) -> torch.Tensor:
        """Return prompts and new tokens of one batch."""
        delta = torch.from_numpy(c * self.vectors[role]).to(self.hf.dtype)

        def hook(module: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
            output[:, -1] += delta
            return output

        handle = self.hf.model.layers[SITE].register_forward_hook(hook)
        try:
            ids: torch.Tensor = self.hf.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
            return ids
        finally:
            handle.remove()


class Repeng(OneAtATime):
    """repeng's ControlModel, which adds at every position, and HF `generate`."""

    def __init__(self, model: LocalModel, vectors: np.ndarray) -> None:
        vars(np).setdefault("float_", np.float64)  # repeng 0.4 was written for NumPy 1
        from repeng import ControlModel, ControlVector

        super().__init__(model, vectors)
        self.controls = [ControlVector(model_type="llama", directions={SITE: vector}) for vector in vectors]
        self.controlled = ControlModel(self.hf, [SITE])

    def steer(self, role: int, c: float, inputs: Any) -> torch.Tensor:
        """Return prompts and new tokens of one batch."""
        self.controlled.set_control(self.controls[role], c)
        ids: torch.Tensor = self.controlled.generate(**inputs, max_new_tokens=TOKENS, do_sample=False)
        return ids


def load(dtype: torch.dtype, ours: bool) -> LocalModel:
    """Load SmolLM2 without stop tokens; a peer's copy keeps PyTorch's own attention, as transformers loads it."""
    model = LocalModel.load()
    model = LocalModel(model.model.to(dtype), model.tokenizer, name=model.name, revision=model.revision)
    model._stops = frozenset()
    model.model.generation_config.eos_token_id = None
    if not ours:
        model.model.set_attn_implementation("sdpa")
    return model


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that `call` takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def agreement(a: Sequence[tuple[int, ...]], b: Sequence[tuple[int, ...]]) -> float:
    """Return the share of rows with equal tokens."""
    return float(np.mean([x == y for x, y in zip(a, b, strict=True)]))


def exact_in_float32(vectors: np.ndarray) -> dict[str, float]:
    """Return the share of cells in which ours and each peer decode the same tokens greedily in float32."""
    rng = random.Random(0)
    rows = [(role, rng.choice(STRENGTHS), q) for role in rng.sample(range(len(vectors)), 2) for q in range(8)]
    ours, peer = load(torch.float32, True), load(torch.float32, False)
    hook = agreement(Ours(ours, vectors, "last")(rows), PlainHook(peer, vectors)(rows))
    return {"hook": hook, "repeng": agreement(Ours(ours, vectors, "all")(rows), Repeng(peer, vectors)(rows))}


def sweep(roles: int, pairs: int, rounds: int) -> list[Entry]:
    """Compare the grid in mixed rows with both one-at-a-time loops."""
    vectors = np.random.default_rng(0).standard_normal((roles, 576)).astype(np.float32)
    vectors *= NORM / np.linalg.norm(vectors, axis=1, keepdims=True)
    grid = [(role, c, q) for role in range(roles) for c in STRENGTHS for q in range(len(QUESTIONS))]
    same = exact_in_float32(vectors)
    ours = load(torch.bfloat16, True)
    sides: dict[str, Callable[[Sequence[Row]], list[tuple[int, ...]]]] = {
        "last": Ours(ours, vectors, "last"),
        "all": Ours(ours, vectors, "all"),
        "hook": PlainHook(load(torch.bfloat16, False), vectors),
        "repeng": Repeng(load(torch.bfloat16, False), vectors),
    }
    speed: dict[str, list[float]] = {name: [] for name in sides}
    shares: dict[str, list[float]] = {"hook": [], "repeng": []}
    for side in sides.values():
        side(grid[:8])
    for number in range(rounds):
        rng = random.Random(number)
        chosen = rng.sample(sorted({row[:2] for row in grid}), pairs)
        subset = [row for row in grid if row[:2] in chosen]
        replies: dict[str, dict[Row, tuple[int, ...]]] = {}
        for name in rng.sample(sorted(sides), len(sides)):
            rows = grid if name in ("last", "all") else subset
            seconds, tokens = timed(partial(sides[name], rows))
            speed[name].append(len(rows) / seconds)
            replies[name] = dict(zip(rows, tokens, strict=True))
        for peer, own in (("hook", "last"), ("repeng", "all")):
            pairs_of_rows = [(replies[own][row], replies[peer][row]) for row in subset]
            shares[peer].append(agreement(*zip(*pairs_of_rows, strict=True)))
    where = (
        f"SmolLM2-135M bf16, {torch.get_num_threads()} threads, {roles} roles x 4 strengths x 8 questions, "
        f"{TOKENS} new tokens, greedy, {rounds} rounds; peer on {pairs} random (role, strength) a round, batch 8"
    )

    def conditions(peer: str, positions: str) -> str:
        return (
            f"{where}; both add at {positions}; same tokens in {same[peer]:.0%} of 16 cells in float32, in "
            f"{statistics.mean(shares[peer]):.0%} of the peer's cells in bf16, where rounding differs with the batch"
        )

    return [
        entry(
            "sweep, against a loop over repeng",
            "cells/s",
            speed["all"],
            speed["repeng"],
            conditions("repeng", "every position"),
        ),
        entry(
            "sweep, against a plain hook and HF generate",
            "cells/s",
            speed["last"],
            speed["hook"],
            conditions("hook", "the last position"),
        ),
    ]


def decoding(rows: int, rounds: int) -> list[Entry]:
    """Compare steered generation with bare forward passes of the same batch."""
    model, other = load(torch.bfloat16, True), load(torch.bfloat16, False)
    chats = [chat(QUESTIONS[i * len(QUESTIONS) // rows]) for i in range(rows)]
    width = max(len(model.encode(c)) for c in chats)
    rng = np.random.default_rng(0)
    steering = Steering(tuple((Intervention(rng.standard_normal(576).astype(np.float32), 1.0, SITE),) for _ in chats))
    sampling = Sampling(TOKENS, 0.2, 0.99)
    seeds = list(range(rows))
    loops: dict[str, Callable[[], Any]] = {
        "steered": lambda: model.generate(chats, sampling, steering, seeds),
        "ours bare": bare(model, rows, width),
        "HF bare": bare_transformers(other, rows, width),
    }
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for loop in loops.values():
        loop()
    for number in range(rounds):
        for name in random.Random(number).sample(sorted(loops), len(loops)):
            seconds[name].append(timed(loops[name])[0])
    speed = {name: [rows * TOKENS / s for s in taken] for name, taken in seconds.items()}
    where = (
        f"SmolLM2-135M bf16, {torch.get_num_threads()} threads, {rows} rows, prompts of {width} tokens, {rounds} rounds"
    )
    return [
        entry(
            "generation, against bare forward passes of our network",
            "tokens/s",
            speed["steered"],
            speed["ours bare"],
            f"{where}; ours with prefill, steering, sampling, text; peer {TOKENS} single-token passes with its cache",
        ),
        entry(
            "generation, against bare forward passes of transformers",
            "tokens/s",
            speed["steered"],
            speed["HF bare"],
            f"{where}; peer {TOKENS} single-token passes of the HF model with its DynamicCache and sdpa",
        ),
    ]


def hooks(rows: int, passes: int) -> list[Entry]:
    """Compare single-token passes with one hook, a vector of its own per row, with passes without, by turns.

    Pass i and its twin write the same column of the cache. The spread is of the median over blocks of passes.
    """
    model = load(torch.bfloat16, True)
    network, rng = model._network, np.random.default_rng(0)
    vectors = rng.standard_normal((rows, network.hidden)).astype(np.float32)
    steering = Steering(tuple((Intervention(vector, 1.0, SITE),) for vector in vectors))
    tokens, cache = torch.full((rows,), 100), filled(model, rows, 24)
    hooked: list[float] = []
    plain: list[float] = []
    with torch.inference_mode():
        for number in range(passes + 2):
            for steered in random.Random(number).sample((True, False), 2):
                with network.steered(steering if steered else Steering.uniform((), rows)) as steerer:
                    steerer.kinds = NEW
                    taken, _ = timed(lambda: network.step(tokens, torch.full((rows,), 24), None, cache))
                for layer in cache.layers:
                    layer.length = 24
                if number >= 2:
                    (hooked if steered else plain).append(rows / taken)
    blocks = [slice(start, start + passes // 5) for start in range(0, passes, passes // 5)]
    return [
        entry(
            "steering at one layer, against none",
            "tokens/s",
            [statistics.median(hooked[block]) for block in blocks],
            [statistics.median(plain[block]) for block in blocks],
            f"SmolLM2-135M bf16, {torch.get_num_threads()} threads, {rows} rows; {passes} single-token passes with a "
            "hook and as many without, by turns, medians of five blocks; overhead per token is 1 - ratio",
        )
    ]


def filled(model: LocalModel, rows: int, width: int) -> RowCache:
    """Return a cache for decoding whose first `width` columns are in use."""
    network = model._network
    with torch.inference_mode():
        first = RowCache(network.sites, width)
        network.model(input_ids=torch.full((1, width), 100), cache=first, use_cache=True)
        return first.expanded([0] * rows, [width] * rows, width + TOKENS, network.turned)


def bare(model: LocalModel, rows: int, width: int) -> Callable[[], None]:
    """Return a loop of single-token passes of our network over a filled cache, nothing else."""
    network, cache = model._network, filled(model, rows, width)
    tokens = torch.full((rows,), 100)

    @torch.inference_mode()
    def loop() -> None:
        for step in range(TOKENS):
            network.step(tokens, torch.full((rows,), width + step), None, cache)
        for layer in cache.layers:
            layer.length = width

    return loop


def bare_transformers(model: LocalModel, rows: int, width: int) -> Callable[[], None]:
    """Return the same loop over the transformers model with its own cache and attention."""
    with torch.inference_mode():
        tokens = torch.full((rows, 1), 100)
        cache = model.model(input_ids=torch.full((rows, width), 100), use_cache=True, logits_to_keep=1).cache

    @torch.inference_mode()
    def loop() -> None:
        for _ in range(TOKENS):
            model.model(input_ids=tokens, cache=cache, use_cache=True, logits_to_keep=1)
        cache.crop(-TOKENS)

    return loop


def extraction(roles: int) -> list[Entry]:
    """Measure, in a process of its own, the memory that an extraction with its filter takes above the loaded models."""
    output = subprocess.run(
        [sys.executable, __file__, "--extraction", str(roles)], capture_output=True, text=True, check=True
    )
    taken = json.loads(output.stdout.splitlines()[-1])
    return [
        {
            "name": "extraction with the likelihood filter, memory above the models",
            "ours": round(taken["mib"]),
            "peer": 300,
            "unit": "MiB",
            "ratio": round(taken["mib"] / 300, 3),
            "spread": None,
            "conditions": f"peak resident size over {taken['responses']} responses of 32 tokens for {roles} roles, "
            f"16 pairs at a time, 30 sites, bf16, {taken['seconds']:.0f} s; SmolLM2 and MiniLM loaded and their "
            "weights touched before; the peer is the limit that was set",
        }
    ]


def _extract(roles: int) -> None:
    import psutil  # type: ignore[import-untyped]

    model, embedder, inventory = LocalModel.load(), Embedder.load(), load_inventory("core-v1")
    embedder.encode(["Yes."])
    model.logprobs([chat(QUESTIONS[0])], ["Yes."])
    process, done = psutil.Process(), threading.Event()
    before = peak = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    chosen = list(inventory)[:roles]
    accept = LikelihoodMarginFilter(model, embedder, inventory)
    seconds, extracted = timed(
        lambda: list(extract_directions(model, chosen, accept=accept, instructions=4, questions=4, max_tokens=32))
    )
    done.set()
    watcher.join()
    print(
        json.dumps(
            {"mib": (peak - before) / 2**20, "seconds": seconds, "responses": 2 * sum(e.n_tried for e in extracted)}
        )
    )


def parts(quick: bool) -> Iterator[list[Entry]]:
    """Run one comparison after another."""
    yield sweep(8, 2, 1) if quick else sweep(32, 3, 3)
    yield decoding(64, 2) if quick else decoding(128, 5)
    yield hooks(64, 20) if quick else hooks(128, 100)
    yield extraction(2 if quick else 25)


def entries(quick: bool = False) -> list[Entry]:
    """Run everything; about a quarter of an hour on two free cores, or two if `quick`."""
    return [line for part in parts(quick) for line in part]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller grid and fewer rounds")
    parser.add_argument("--extraction", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.extraction:
        _extract(arguments.extraction)
    else:
        for part in parts(arguments.quick):
            for line in part:
                print(json.dumps(line, ensure_ascii=False), flush=True)
