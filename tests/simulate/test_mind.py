"""Memory and thinking in a study file; the lock given at the command line."""

import pytest

from rolecraft.errors import UserError
from rolecraft.simulate import read_episode, read_study
from rolecraft.testing import ScriptedModel


def said_or_heard(chat, seed: int) -> str:
    """A script that says whether it is shown its own earlier turns."""
    prompt = "\n".join(message["content"] for message in chat)
    return f"I {'remember' if 'What you remember of your earlier turns' in prompt else 'know nothing'}"


def thinker(chat, seed: int) -> str:
    assert "<think>" in chat[-1]["content"]
    return "<think>the plan is secret</think><act>good day</act>"


@pytest.fixture
def start(write_lock, write_study, chat_world, play, tmp_path):
    def started(script, lines: str, world: str = chat_world):
        model = ScriptedModel(script)
        write_lock(model.name, model.revision)
        return play(write_study(lines, world=world, episodes=1), tmp_path / "run", model)

    return started


@pytest.mark.parametrize("kind", ["window", "summary", "retrieval, capacity: 4"])
def test_agents_remember_their_own_turns(start, kind, monkeypatch):
    run = start(said_or_heard, f"memory: {{kind: {kind}}}")
    for agent in ("ann", "bob"):
        assert [turn.action for turn in read_episode(run, "roles/0").of(agent)] == [
            "I know nothing", "I remember", "I remember",
        ]  # fmt: skip


def test_without_a_memory_nothing_is_remembered(start):
    run = start(said_or_heard, "")
    assert {turn.action for turn in read_episode(run, "roles/0").turns} == {"I know nothing"}


def test_a_thought_is_on_record_and_reaches_nobody(start):
    turns = read_episode(start(thinker, "think: tags"), "roles/0").turns
    assert {turn.action for turn in turns} == {"good day"}
    assert {turn.notes["thought"] for turn in turns} == {"the plan is secret"}
    assert not any("secret" in turn.observation for turn in turns)


def test_a_window_longer_than_the_engines_recall_is_filled(start):
    shown = []

    def script(chat, seed: int) -> str:
        shown.append(chat[-1]["content"].count("You did:"))
        return "hm"

    start(script, "memory: {kind: window, turns: 20, budget: 100000}", "{name: chatter, rounds: 15}")
    assert max(shown) == 14


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("memory: {kind: windows}", "memory"),
        ("memory: {kind: window, turn: 3}", "Did you mean 'turns'"),
        ("memory: {kind: window, turns: 0}", "turns must be at least 1"),
        ("memory: {kind: summary, summarise: 3}", "no option 'summarise'"),
        ("think: loudly", "think"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_played(start, tmp_path, line, message):
    with pytest.raises(UserError, match=message):
        start(said_or_heard, line)
    assert not (tmp_path / "run").exists()


def test_a_lock_may_be_given_instead_of_the_files(write_study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_study(write_study(), "other/roles.lock").lock == tmp_path / "other/roles.lock"
    assert read_study(write_study()).lock == tmp_path / "roles.lock"


def test_agents_act_when_they_are_ready(start):
    run = start(said_or_heard, "pace: {ann: 5}", "{name: chatter, rounds: 40, pairs: true}")
    episode = read_episode(run, "roles/0")
    assert len(episode.of("ann")) < len(episode.of("bob")) == 40
