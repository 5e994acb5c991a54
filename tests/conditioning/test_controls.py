from dataclasses import replace

import numpy as np
import pytest

from rolecraft.conditioning import (
    Direction,
    Manifest,
    assistant_axis,
    extract_default,
    extract_directions,
    norm_matched,
    random_direction,
    shuffled,
)
from rolecraft.errors import ExtractionError, SteeringShapeError, UserError
from tests.conditioning.planted import PlantedModel, role

NAMES = ("pirate", "poet", "judge")


def direction(name: str, size: int = 256, n_sites: int = 3) -> Direction:
    draws = np.random.default_rng(len(name)).standard_normal((n_sites, size)).astype(np.float32)
    manifest = Manifest(name, "role", "local:planted", "rev", site=1, n_sites=n_sites, n=9)
    return Direction({site: (site + 1) * len(name) * draws[site] for site in range(n_sites)}, manifest)


def test_random_directions_have_the_norms_of_the_role_and_no_preference() -> None:
    like = direction("pirate", 2048)
    draws = [random_direction(like, seed) for seed in range(20)]
    for draw in draws:
        for site in like.sites:
            assert draw.norm(site) == pytest.approx(like.norm(site), rel=1e-5)
            assert abs(draw.cosine(like, site)) < 6 / np.sqrt(2048)
    cosines = [a.cosine(b) for i, a in enumerate(draws) for b in draws[:i]]
    assert np.std(cosines) == pytest.approx(1 / np.sqrt(2048), rel=0.2)
    assert random_direction(like, 3).cosine(draws[3]) == pytest.approx(1)
    assert abs(random_direction(direction("poet", 2048), 3).cosine(draws[3])) < 0.2  # own draw per role
    assert (draws[0].manifest.kind, draws[0].manifest.n) == ("random", 0)


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_is_a_derangement_at_the_roles_own_norm(seed: int) -> None:
    own = {name: direction(name) for name in ("a", "bb", "ccc", "dddd", "eeeee")}
    mixed = shuffled(own, seed)
    donors = [mixed[name].manifest.extra["from"] for name in own]
    assert list(mixed) == list(own)
    assert sorted(donors) == sorted(own)
    assert all(donor != name for donor, name in zip(donors, own, strict=True))
    for name, donor in zip(own, donors, strict=True):
        for site in (0, 1, 2):
            assert mixed[name].norm(site) == pytest.approx(own[name].norm(site), rel=1e-5)
            assert mixed[name].cosine(own[donor], site) == pytest.approx(1)


def test_shuffled_needs_two_roles_and_does_not_depend_on_their_order() -> None:
    with pytest.raises(UserError, match="at least 2"):
        shuffled({"a": direction("a")})
    own = {name: direction(name) for name in ("a", "bb", "ccc", "dddd")}
    turned = shuffled(dict(reversed(own.items())), 1)
    assert all(turned[n].manifest.extra == d.manifest.extra for n, d in shuffled(own, 1).items())


def test_norm_matched_scales_all_sites_by_one_factor() -> None:
    a = direction("pirate")
    b = norm_matched(a, 7.0, site=2)
    assert b.norm(2) == pytest.approx(7)
    assert b.norm(0) / b.norm(1) == pytest.approx(a.norm(0) / a.norm(1))
    for norm in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(SteeringShapeError):
            norm_matched(a, norm)


def test_the_axis_is_default_minus_roles_with_equal_weights() -> None:
    model = PlantedModel(NAMES)
    model.reply = lambda chat, seed: "" if "poet" in model.side(chat) and seed % 2 else model.plain_reply(chat, seed)
    extractions = list(extract_directions(model, [role(name, 16) for name in NAMES], seed=2))
    assert len({e.n_pairs for e in extractions}) > 1
    truth = -np.mean([model.truth[name] for name in NAMES], axis=0)
    by_bases = assistant_axis(extractions)
    by_default = assistant_axis(iter(extractions), extract_default(model, ["What now?", "And then?"]))
    for site in by_bases.sites:
        np.testing.assert_allclose(by_bases.at(site), truth[site], atol=1e-4)
        np.testing.assert_allclose(by_default.at(site), truth[site], atol=1e-4)
    assert by_bases.manifest.kind == "axis"
    assert by_bases.manifest.n == 3
    by_bases.check(model)


def test_an_axis_that_cannot_be_had_is_refused() -> None:
    model = PlantedModel(NAMES)
    raw = list(extract_directions(model, [role("pirate")], "assistant-axis", bank=["Why?", "How?"]))
    with pytest.raises(ExtractionError, match="needs the default assistant"):
        assistant_axis(raw)
    with pytest.raises(ExtractionError, match="at least one role"):
        assistant_axis([])
    opposite = list(extract_directions(model, [role("pirate")], "persona-vectors"))
    with pytest.raises(ExtractionError, match="needs the default assistant"):
        assistant_axis(opposite)  # a base side that asks for the opposite is no default
    model.truth["poet"] = np.zeros_like(model.truth["poet"])
    with pytest.raises(ExtractionError, match="axis is zero"):
        assistant_axis(extract_directions(model, [role("poet")]))
    other = replace(raw[0], manifest=replace(raw[0].manifest, revision="x"))
    with pytest.raises(SteeringShapeError, match="'planted-1' and 'x'"):
        assistant_axis([*raw, other], extract_default(model, ["Why?", "How?"]))
