"""A query answered twice: what the observer sees, what each earns, and what is cut."""

import warnings

import pytest

from rolecraft.errors import IllegalActionError, UserError
from rolecraft.testing import check_world
from rolecraft.worlds import Act, HintCutWarning, HintedReply, hint_then_query, play

QUERIES = ("how is it", "what next")


def reward(query, answer):
    return len(answer.split()) + 10.0 * QUERIES.index(query)


def merge(query, answer):
    return f"{query} {answer} ; {query}"


class Says:
    def __init__(self, *texts):
        self.texts, self.seen = list(texts), []

    def act(self, views):
        self.seen += [(view.agent, view.observation) for view in views]
        return [Act(self.texts[len(self.seen) - len(views) + n]) for n in range(len(views))]


def played(*texts, seed=0, **options):
    policy = Says(*texts)
    world = HintedReply(QUERIES, options.pop("reward", reward), options.pop("merge", merge), **options)
    return play(world, dict.fromkeys(world.agents, policy), seed), policy.seen


def test_it_keeps_the_contract_of_worlds():
    class Good:
        def act(self, views):
            return [Act("good") for _ in views]

    for options in ({}, {"transfer": False}, {"seats": 1}):
        check_world(lambda options=options: HintedReply(QUERIES, reward, **options), policy=Good(), seeds=(0, 1, 2))


def test_the_observer_sees_the_answer_and_the_pioneer_never_sees_the_observers():
    episode, seen = played("very good", "so so so", seed=1)
    assert seen == [("pioneer", "what next"), ("observer", "what next very good ; what next")]
    assert episode.rewards == {"pioneer": 12, "observer": 13}
    assert episode.outcome["answers"] == {"pioneer": "very good", "observer": "so so so"}
    assert hint_then_query("why", "so it is").startswith("why\n")
    assert hint_then_query("why", "so it is").endswith("\nwhy")
    assert "so it is" in hint_then_query("why", "so it is")


def test_the_pioneer_sees_the_query_alone_to_the_end():
    world = HintedReply(QUERIES, reward, merge)
    for agent, said in (("pioneer", "good"), ("observer", "bad")):
        assert world.observe("pioneer") == "how is it"
        world.act({agent: said})
    assert world.observe("pioneer") == "how is it"
    assert world.observe("observer") == "how is it good ; how is it"


def test_without_transfer_or_an_answer_the_observer_sees_the_query_alone():
    assert played("good", "good", transfer=False)[1][1] == ("observer", "how is it")
    for empty in ("", "  "):
        assert played(empty, "good")[1][1] == ("observer", "how is it")


def test_one_seat_is_one_answer():
    episode, seen = played("good", seats=1)
    assert seen == [("pioneer", "how is it")]
    assert episode.rewards == {"pioneer": 1}
    assert not episode.outcome["copied"]


def test_the_reward_is_of_query_and_answer_alone():
    """The same answer earns the same in either seat, after any hint and at any turn."""
    calls = []

    def paid(query, answer):
        calls.append((query, answer))
        return 1.0

    for options in ({}, {"transfer": False}, {"seats": 1}):
        played("good", "good", reward=paid, **options)
    assert set(calls) == {("how is it", "good")}
    episode, _ = played("so good", "so good")
    assert episode.rewards["pioneer"] == episode.rewards["observer"]
    assert episode.outcome["copied"]
    assert not played("so good", "so bad")[0].outcome["copied"]
    assert not played("", "")[0].outcome["copied"]


@pytest.mark.parametrize(
    ("longest", "kept"), [(9, "a b"), (8, "a"), (7, None), (3, None), (11, "a b c d"), (10, "a b c")]
)
def test_an_answer_that_does_not_fit_is_cut_and_the_query_never(longest, kept):
    def run():
        return played("a b  c d", "x", longest=longest)

    cut = 4 - len((kept or "").split())
    if cut:
        with pytest.warns(HintCutWarning, match=f"{cut} of 4 words"):
            episode, seen = run()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            episode, seen = run()
    prompt = seen[1][1]
    assert prompt.split() == (f"how is it {kept} ; how is it" if kept else "how is it").split()
    assert episode.outcome["cut"] == cut
    assert episode.rewards["pioneer"] == 4  # what is paid is the whole answer


def test_the_length_may_be_counted_otherwise():
    with pytest.warns(HintCutWarning):
        _, seen = played("aaa bbb", "x", longest=len("how is it aaa ; how is it"), length=len)
    assert seen[1][1] == "how is it aaa ; how is it"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_names_query_and_answer(value):
    with pytest.raises(UserError, match=r"'good' to 'how is it'"):
        played("good", "good", reward=lambda query, answer: value)


def test_bad_input():
    with pytest.raises(UserError, match="no queries"):
        HintedReply([], reward)
    with pytest.raises(UserError, match="seats"):
        HintedReply(QUERIES, reward, seats=3)
    with pytest.raises(UserError, match="never cut"):
        HintedReply(QUERIES, reward, longest=2)
    with pytest.raises(UserError, match="merge lost the query"):
        played("good", "good", merge=lambda query, answer: answer)
    world = HintedReply(QUERIES, reward)
    with pytest.raises(IllegalActionError, match="turn of pioneer"):
        world.act({"observer": "good"})
