import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors

from rolecraft.conditioning import Direction, Manifest, default_site
from rolecraft.errors import SteeringShapeError, UserError

MANIFEST = Manifest("pirate", "role", "local:planted", "rev", site=1, n_sites=3, n=9, extra={"preset": "cast-vectors"})
MODEL = SimpleNamespace(name="local:planted", revision="rev", n_sites=3, hidden=4)


def direction(scale: float = 1.0, seed: int = 0, **changes: object) -> Direction:
    draws = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
    return Direction({site: scale * draws[site] for site in range(3)}, replace(MANIFEST, **changes))  # type: ignore[arg-type]


def test_arithmetic_is_that_of_the_vectors() -> None:
    a, b, c = direction(seed=1), direction(seed=2), direction(seed=3)
    result = 2 * (a + b) - c / 4
    for site in range(3):
        np.testing.assert_allclose(result.at(site), 2 * (a.at(site) + b.at(site)) - c.at(site) / 4, rtol=1e-6)
    np.testing.assert_array_equal((-a).at(0), -a.at(0))
    assert result.manifest.kind == "combination"
    assert (a - (b - c)).manifest.role == "pirate - (pirate - pirate)"
    assert (a * 2).manifest.norm == pytest.approx(2 * a.manifest.norm)
    assert result.at(0).dtype == np.float32


def test_norm_unit_and_cosine() -> None:
    a = Direction({1: np.array([3.0, 4.0], np.float32)}, MANIFEST)
    b = Direction({1: np.array([-6.0, -8.0], np.float32)}, MANIFEST)
    c = Direction({1: np.array([4.0, -3.0], np.float32)}, MANIFEST)
    assert a.norm() == pytest.approx(5)
    assert a.manifest.norm == pytest.approx(5)
    assert a.unit().norm(1) == pytest.approx(1)
    assert a.cosine(b) == pytest.approx(-1)
    assert a.cosine(c) == pytest.approx(0, abs=1e-7)
    with pytest.raises(SteeringShapeError, match="zero at site 1"):
        (a - a).unit()
    with pytest.raises(SteeringShapeError, match="undefined"):
        a.cosine(a - a)


def test_steer_makes_the_intervention() -> None:
    a = direction()
    plain = a.steer(1.5)
    assert (plain.strength, plain.site, plain.operator, plain.positions, plain.phase) == (1.5, 1, "add", "last", "both")
    np.testing.assert_array_equal(plain.vector, a.at(1))
    cap = a.steer(1.0, site=2, operator="cap", threshold=0.5, positions="all", phase="prefill")
    assert (cap.site, cap.threshold, cap.positions, cap.phase) == (2, 0.5, "all", "prefill")


@pytest.mark.parametrize(
    ("vectors", "match"),
    [
        ({}, "one shape"),
        ({1: np.zeros((2, 2))}, "one shape"),
        ({0: np.zeros(3), 1: np.zeros(4)}, "one shape"),
        ({1: np.array([1.0, np.nan])}, "not finite at site 1"),
        ({1: np.array([1.0, np.inf])}, "not finite at site 1"),
        ({1: np.ones(2), 3: np.ones(2)}, "site 3 is out of range"),
        ({0: np.ones(2)}, "no vector at site 1; it has sites 0"),
    ],
)
def test_what_is_no_direction_is_refused(vectors: dict[int, np.ndarray], match: str) -> None:
    with pytest.raises(SteeringShapeError, match=match):
        Direction(vectors, MANIFEST)


def test_overflow_in_arithmetic_is_refused() -> None:
    with pytest.raises(SteeringShapeError, match="not finite"), np.errstate(over="ignore"):
        direction(1e30) * 1e30
    with pytest.raises(SteeringShapeError, match="finite number"):
        direction() * float("nan")


def test_directions_of_other_models_or_sites_do_not_mix() -> None:
    with pytest.raises(SteeringShapeError, match="'rev' and 'other'"):
        direction() + direction(revision="other")
    with pytest.raises(SteeringShapeError, match="sites 0 to 2 and sites 1"):
        direction() - direction().select([1])
    wide = Direction({1: np.ones(5, np.float32)}, MANIFEST)
    with pytest.raises(SteeringShapeError, match="4 and 5"):
        direction().select([1]) + wide


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"hidden": 8}, "hidden size is 4 .* and 8"),
        ({"n_sites": 30}, "number of sites is 3 .* and 30"),
        ({"name": "local:other"}, "model is 'local:planted' .* and 'local:other'"),
        ({"revision": "new"}, "revision is 'rev' .* and 'new'"),
    ],
)
def test_check_names_both_values(change: dict[str, object], match: str) -> None:
    direction().check(MODEL)
    with pytest.raises(SteeringShapeError, match=match):
        direction().check(SimpleNamespace(**(vars(MODEL) | change)))


def test_vectors_cannot_be_changed_in_place_or_from_outside() -> None:
    source = np.ones(4, np.float32)
    a = Direction({1: source}, MANIFEST)
    source[:] = 7
    assert a.at(1).max() == 1
    with pytest.raises(ValueError, match="read-only"):
        a.at(1)[0] = 7


def test_save_and_load_are_equal(tmp_path: Path) -> None:
    a = direction(created="2026-01-02T03:04:05+00:00")
    a.save(tmp_path / "deep" / "pirate.safetensors")
    b = Direction.load(tmp_path / "deep" / "pirate.safetensors")
    assert b.manifest == a.manifest
    assert b.sites == a.sites
    for site in a.sites:
        np.testing.assert_array_equal(a.at(site), b.at(site))


def test_every_changed_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pirate.safetensors"
    direction().select([1]).save(path)
    content = path.read_bytes()
    accepted = []
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            Direction.load(path)
            accepted.append(place)
        except UserError:
            pass
    assert not accepted


def test_swapped_vectors_are_refused(tmp_path: Path) -> None:
    from safetensors import safe_open

    path = tmp_path / "pirate.safetensors"
    a = direction()
    a.save(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    path.write_bytes(save_tensors({"site.0": a.at(1), "site.1": a.at(0), "site.2": a.at(2)}, metadata=metadata))
    with pytest.raises(UserError, match="site 0 was changed"):
        Direction.load(path)
    path.write_bytes(save_tensors({"site.0": a.at(0), "site.1": a.at(1)}, metadata=metadata))
    with pytest.raises(UserError, match="its manifest lists"):
        Direction.load(path)


def test_files_that_are_no_directions_are_refused_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(UserError, match=r"x\.safetensors: no such file"):
        Direction.load(path)
    path.write_bytes(b"\x80\x04pickle, perhaps")
    with pytest.raises(UserError, match="not a readable safetensors file"):
        Direction.load(path)
    path.write_bytes(save_tensors({"w": np.ones(2, np.float32)}))
    with pytest.raises(UserError, match="holds no Rolecraft manifest"):
        Direction.load(path)


def test_a_manifest_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written as JSON"):
        direction(extra={"x": float("nan")}).save(tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    assert json.loads(json.dumps(direction().manifest.hashes)).keys() == {"0", "1", "2"}


def test_half_depth() -> None:
    assert default_site(SimpleNamespace(name="", revision="", n_sites=30, hidden=1)) == 15
    assert default_site(SimpleNamespace(name="", revision="", n_sites=3, hidden=1)) == 1
