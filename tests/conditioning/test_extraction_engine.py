"""Extraction on the real engine: a tiny random transformer, so the numbers mean nothing but must agree."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from rolecraft.conditioning import (
    PRESETS,
    Direction,
    ReadableModel,
    Steering,
    extract_direction,
    extract_directions,
    prompted,
)
from rolecraft.conditioning._trials import plan, role_subject
from rolecraft.models import GREEDY, LocalModel, chat
from rolecraft.testing import tiny_model
from tests.conditioning.planted import role

SMALL = replace(PRESETS["cast-vectors"], instructions=2, questions=4, max_tokens=6)


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return tiny_model()


def test_the_direction_is_the_difference_of_the_means_of_what_was_said(model: LocalModel) -> None:
    readable: ReadableModel = model
    pirate = role("pirate")
    extraction = extract_direction(readable, pirate, SMALL, batch_pairs=3)
    trials = plan(role_subject(pirate, SMALL, None), SMALL, 0)[: extraction.n_tried]
    said = [
        [
            reply.text
            for reply in model.generate(
                [t.chats[side] for t in trials], SMALL.sampling, seeds=[t.seeds[side] for t in trials]
            )
        ]
        for side in (0, 1)
    ]
    kept = [i for i in range(len(trials)) if said[0][i].strip() and said[1][i].strip()]
    assert len(kept) == extraction.n_pairs
    means = []
    for side in (0, 1):
        rows = dict(model.activations([trials[i].chats[side] for i in kept], [said[side][i] for i in kept]))
        means.append(np.mean([rows[place] for place in range(len(kept))], axis=0))
    assert extraction.direction is not None
    for site in range(model.n_sites):
        np.testing.assert_allclose(extraction.direction.at(site), means[0][site] - means[1][site], atol=1e-5)
    assert trials[0].chats[1][0] == {"role": "system", "content": ""}


def test_order_and_company_of_roles_change_nothing(model: LocalModel) -> None:
    roles = [role(name) for name in ("pirate", "poet", "judge")]
    alone = extract_direction(model, roles[1], SMALL)
    together = {e.role: e for e in extract_directions(model, roles[::-1], SMALL)}
    assert alone.direction is not None
    assert together["poet"].direction is not None
    assert together["poet"].n_empty == alone.n_empty
    np.testing.assert_allclose(together["poet"].direction.at(), alone.direction.at(), atol=1e-4)


def test_a_reloaded_direction_gives_identical_text(model: LocalModel, tmp_path: Path) -> None:
    own = extract_direction(model, role("pirate"), SMALL).direction
    assert own is not None
    path = tmp_path / "pirate.safetensors"
    own.save(path)
    again = Direction.load(path)
    again.check(model)
    asked = [chat("Who are you?"), prompted(role("poet"), "Well?")]
    sampling = replace(GREEDY, max_tokens=12)
    texts = [model.generate(asked, sampling, Steering.uniform([d.steer(3.0)], 2)) for d in (own, again)]
    assert [r.token_ids for r in texts[0]] == [r.token_ids for r in texts[1]]
    assert [r.token_ids for r in texts[0]] != [r.token_ids for r in model.generate(asked, sampling)]


def test_the_direction_is_added_where_it_was_read(model: LocalModel) -> None:
    """Reading a steered forward pass gives the unsteered state plus strength times the vector, at that site exactly."""
    own = extract_direction(model, role("pirate"), SMALL).direction
    assert own is not None
    asked, reply = [chat("Who are you?")], ["the pirate"]
    site = own.manifest.site
    steering = Steering.uniform([own.steer(1.5)], 1)
    ((_, plain),) = model.activations(asked, reply)
    ((_, moved),) = model.activations(asked, reply, steering=steering)
    np.testing.assert_allclose(moved[site] - plain[site], 1.5 * own.at(), atol=1e-5)
    np.testing.assert_array_equal(moved[:site], plain[:site])
