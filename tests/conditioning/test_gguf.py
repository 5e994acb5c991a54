import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rolecraft.conditioning import Direction, Intervention, Manifest, Steering, read_gguf
from rolecraft.errors import SteeringShapeError, UserError
from rolecraft.models import chat
from tests.conditioning import llama_cpp

gguf = pytest.importorskip("gguf")

MODEL = SimpleNamespace(name="local:planted", revision="rev", n_sites=6, hidden=8)
MANIFEST = Manifest("pirate", "role", MODEL.name, MODEL.revision, site=3, n_sites=6, n=9, extra={"preset": "x"})


def direction() -> Direction:
    draws = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    return Direction(dict(enumerate(draws)), MANIFEST)


def write(path: Path, tensors: dict[str, np.ndarray], architecture: str = "controlvector") -> None:
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_string("controlvector.model_hint", "llama")
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def repeng(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package repeng, whose annotations use a name that numpy 2 dropped."""
    monkeypatch.setattr(np, "float_", np.float64, raising=False)
    return pytest.importorskip("repeng")


def test_gguf_holds_the_default_site_and_comes_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "pirate.gguf"
    direction().to_gguf(path)
    again = Direction.from_gguf(path, MODEL)
    assert again.sites == (3,)
    np.testing.assert_array_equal(again.at(3), direction().at(3))
    assert replace(again.manifest, created="") == replace(direction().select([3]).manifest, created="")


def test_several_sites_come_back_and_site_0_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pirate.gguf"
    direction().to_gguf(path, sites=[5, 1])
    again = read_gguf(path)
    assert again.sites == (1, 5)
    np.testing.assert_array_equal(again.at(5), direction().at(5))
    with pytest.raises(SteeringShapeError, match="cannot hold site 0"):
        direction().to_gguf(tmp_path / "none.gguf", sites=[0, 1])
    assert not (tmp_path / "none.gguf").exists()


def test_repeng_reads_what_we_write(tmp_path: Path, repeng: Any) -> None:
    path = tmp_path / "pirate.gguf"
    direction().to_gguf(path, sites=[1, 3])
    vector = repeng.ControlVector.import_gguf(path)
    assert vector.model_type == MODEL.name
    assert set(vector.directions) == {1, 3}
    np.testing.assert_array_equal(vector.directions[3], direction().at(3))


def test_we_read_what_repeng_writes(tmp_path: Path, repeng: Any) -> None:
    path = tmp_path / "happy.gguf"
    vectors = {site: direction().at(site) for site in (4, 2)}
    repeng.ControlVector(model_type="llama", directions=vectors).export_gguf(path)
    with pytest.raises(UserError, match="pass model="):
        Direction.from_gguf(path)
    again = Direction.from_gguf(path, MODEL)
    assert again.sites == (2, 4)
    assert (again.manifest.site, again.manifest.role, again.manifest.kind) == (2, "happy", "imported")
    assert again.manifest.extra == {"model_hint": "llama"}
    np.testing.assert_array_equal(again.at(4), vectors[4])
    again.check(MODEL)


def test_bad_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    ones = np.ones(8, np.float32)
    with pytest.raises(UserError, match="no such file"):
        read_gguf(path, MODEL)
    path.write_bytes(b"GGUF, not quite")
    with pytest.raises(UserError, match="not a readable GGUF"):
        read_gguf(path, MODEL)
    cases: list[tuple[dict[str, np.ndarray], str, str]] = [
        ({"direction.1": ones}, "llama", "architecture 'llama'"),
        ({"direction.one": ones}, "controlvector", "unexpected tensor 'direction.one'"),
        ({"output.weight": ones}, "controlvector", "unexpected tensor 'output.weight'"),
        ({"direction.1": ones.astype(np.float16)}, "controlvector", "one-dimensional float32"),
        ({"direction.1": np.ones((2, 4), np.float32)}, "controlvector", "one-dimensional float32"),
    ]
    for tensors, architecture, match in cases:
        write(path, tensors, architecture)
        with pytest.raises(UserError, match=match):
            read_gguf(path, MODEL)
    for tensors in ({"direction.1": np.ones(9, np.float32)}, {"direction.6": ones}, {"direction.1": ones * np.nan}):
        write(path, tensors)
        with pytest.raises(SteeringShapeError):
            read_gguf(path, MODEL)


def test_a_changed_file_or_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pirate.gguf"
    direction().to_gguf(path)
    with pytest.raises(SteeringShapeError, match=r"'rev' .* and 'new'"):
        read_gguf(path, SimpleNamespace(**(vars(MODEL) | {"revision": "new"})))
    content = path.read_bytes()
    place = content.index(direction().at(3).tobytes())
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(UserError, match="site 3 was changed"):
        read_gguf(path)


SITE = 12
PROMPT = chat("What did you do this morning?")


def test_llama_cpp_does_with_the_file_what_the_local_hook_does(tmp_path: Path) -> None:
    """Next-token log-probabilities: llama.cpp (quantised arithmetic) against float32 with our own steering."""
    pytest.importorskip("xllamacpp")
    torch = pytest.importorskip("torch")
    from rolecraft.models import LocalModel
    from rolecraft.models._weights import SMOLLM2, locate

    model = LocalModel.load(dtype="float32")
    vector = np.random.default_rng(0).standard_normal(model.hidden).astype(np.float32)
    vector *= 40 / np.linalg.norm(vector)  # a third of the state's norm
    manifest = Manifest("random", "random", model.name, model.revision, site=SITE, n_sites=model.n_sites)
    one = Direction({SITE: vector}, manifest)
    one.to_gguf(tmp_path / "vector.gguf")
    text = model.tokenizer.decode(model.encode(PROMPT))

    def theirs(*vectors: str) -> dict[int, float]:
        out = tmp_path / "out.json"
        command = [sys.executable, "-m", llama_cpp.__name__, str(locate(SMOLLM2)), str(out), text, *vectors]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode == llama_cpp.UNSUPPORTED:
            pytest.skip("this build of xllamacpp does not export llama.cpp's parser, its only way to control vectors")
        assert done.returncode == 0, done.stderr[-2000:]
        top = json.loads(out.read_text())["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return {entry["id"]: entry["logprob"] for entry in top}

    def ours(site: int | None) -> np.ndarray:
        moved = () if site is None else (Intervention(vector, 1.0, site, positions="all"),)
        steering = Steering.uniform(moved, 1)
        ((_, last),) = model.activations([PROMPT], [""], [model.n_sites - 1], "prompt-last", steering)
        with torch.no_grad():
            logits = model.model.lm_head(model.model.model.norm(torch.from_numpy(last)))
        return np.asarray(logits[0].log_softmax(-1))

    def error(logprobs: np.ndarray, reference: dict[int, float]) -> float:
        return float(np.sqrt(np.mean([(logprobs[token] - value) ** 2 for token, value in reference.items()])))

    plain, steered, doubled = (theirs(*v) for v in ((), (f"{tmp_path}/vector.gguf:1",), (f"{tmp_path}/vector.gguf:2",)))
    noise = error(ours(None), plain)
    assert noise < 0.25
    right = error(ours(SITE), steered)
    assert right < 0.25
    for wrong in (None, SITE - 1, SITE + 1):
        assert error(ours(wrong), steered) > 2 * right, wrong
    assert error(ours(SITE), doubled) > 2 * right
