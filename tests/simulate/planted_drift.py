"""Agents whose drift is planted: they speak in words of their role, and from some turn on in others."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from rolecraft.conditioning import Direction, conditioned
from rolecraft.conditioning._direction import Manifest
from rolecraft.models import Completion, LocalModel, chat
from rolecraft.roles import load_inventory
from rolecraft.screening._lock import file_hash
from rolecraft.testing import tiny_model

OWN = ("aa", "ab", "ba", "bb")
OTHER = ("99", "98", "89", "88")
PIRATE = next(role for role in load_inventory("core-v1") if role.id == "pirate")
REMINDER = conditioned(PIRATE, "", "instruction")[0]["content"]


def text(words: tuple[str, ...], seed: int) -> str:
    return " ".join(np.random.default_rng(seed).choice(words, 6))


def planted_direction(model: LocalModel, role: str = "pirate", site: int = 1) -> Direction:
    """Return the mean difference between what is read of 20 texts of each kind."""
    means = []
    for words, base in ((OWN, 10_000), (OTHER, 20_000)):
        texts = [text(words, base + number) for number in range(20)]
        rows = model.activations([chat("")] * 20, texts, [site])
        means.append(np.mean([state[0] for _, state in rows], axis=0))
    manifest = Manifest(role, "role", model.name, model.revision, site=site, n_sites=model.n_sites, n=20)
    return Direction({site: (means[0] - means[1]).astype(np.float32)}, manifest)


def locked(model: LocalModel, folder: Path, strength: float = 2.0) -> dict:
    """Save the pirate's direction and return the entry of a lock that steers by it."""
    path = folder / "pirate.safetensors"
    if not path.exists():
        planted_direction(model).save(path)
    return {
        "verdict": "PASS", "conditioner": "steering", "strength": strength, "site": 1, "direction": path.name,
        "direction_sha256": file_hash(path),
    }  # fmt: skip


def drifter(leaves: int, mended_by: str = "") -> LocalModel:
    """Return a tiny model that is really read, but speaks by this script: `ann` leaves her role at a step.

    `mended_by`: `prompt` brings her back while the observation holds the role's own prompt, `strength` while she is
    steered by more than the locked strength, `cap` while her projection is held.
    """
    model = tiny_model()

    def generate(chats, sampling, steering=None, seeds=None):
        replies = []
        for row, (one, seed) in enumerate(zip(chats, seeds, strict=True)):
            seen = one[-1]["content"]
            step = int(re.search(r"turn (\d+)", seen)[1])
            rows = steering.rows[row] if steering else ()
            mended = {
                "prompt": REMINDER in seen,
                "strength": any(one.strength > 2 for one in rows),
                "cap": any(one.operator == "cap" for one in rows),
            }.get(mended_by, False)
            away = "ann" in seen.split("\n")[0] and step >= leaves and not mended
            replies.append(Completion(text(OTHER if away else OWN, seed), "stop", 5, 10))
        return replies

    model.generate = generate  # type: ignore[method-assign]
    return model
