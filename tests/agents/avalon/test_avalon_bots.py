"""Avalon's rule bots: the Servant's posterior, each bot's rules, and the exact Bayes Servant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft._run import derive_seed
from rolecraft.agents import (
    AVALON_BOTS,
    AssassinBot,
    AvalonBots,
    BayesServantBot,
    MerlinBot,
    MinionBot,
    NaiveBot,
    ServantBot,
    preferred_teams,
    servant_placements,
)
from rolecraft.errors import UserError
from rolecraft.worlds import AVALON_EVIL, Avalon, AvalonView, View, play, team_action

FIVE = ("servant", "servant", "merlin", "minion", "assassin")
SEVEN = ("merlin", "servant", "servant", "servant", "minion", "minion", "assassin")


def at(roles: Sequence[str], leader: int = 0, team: Sequence[int] = (), quest: int = 0) -> Avalon:
    """A game after some quests that the first players passed alternately; with a team it is put to the vote."""
    world = Avalon(len(roles), preset=dict(enumerate(roles)), leader=leader)
    for number in range(quest):
        send(world, range(world.setup.sizes[number]), fails=number % 2)
    if team:
        world.act({world.acting[0]: team_action(team)})
    return world


def send(world: Avalon, team: Sequence[int], fails: int = 0) -> None:
    """Send a team; if needed, of the same size with enough evil on it for the fails."""
    evil = [seat for seat, good in enumerate(world.good) if not good]
    chosen = sorted([*evil[:fails], *[seat for seat in team if world.good[seat]]][: len(team)])
    world.act({world.acting[0]: team_action(chosen)})
    world.act(dict.fromkeys(world.agents, "approve"))
    world.act({f"player {s}": "fail" if s in evil[:fails] else "pass" for s in chosen})


def seen(world: Avalon, seat: int) -> AvalonView:
    return world.knows(f"player {seat}")


# The Servant's posterior


def test_one_fail_rules_out_only_that_both_evil_were_elsewhere() -> None:
    found = servant_placements(5, 2, 0, (((1, 2), 1),))
    assert set(found.possible) == {frozenset(pair) for pair in combinations((1, 2, 3, 4), 2)} - {frozenset({3, 4})}
    assert found.good(5) == pytest.approx((1, 0.4, 0.4, 0.6, 0.6))
    assert not found.reset


def test_two_fails_make_it_certain() -> None:
    found = servant_placements(5, 2, 0, (((1, 2), 2),))
    assert found.possible == (frozenset({1, 2}),)
    assert found.all_good((0, 3, 4)) == 1
    assert found.all_good((0, 1)) == 0


def test_no_evidence_is_uniform_and_success_proves_nothing() -> None:
    assert len(servant_placements(5, 2, 3).possible) == 6
    assert servant_placements(5, 2, 0, (((1, 2), 0),)) == servant_placements(5, 2, 0)
    assert len(servant_placements(10, 4, 0).possible) == 126


def test_no_placement_left_means_all_again_and_says_so() -> None:
    impossible = ((0, 1), 2)  # the Servant itself was on the team
    found = servant_placements(5, 2, 0, (impossible,))
    assert found.reset
    assert len(found.possible) == 6
    later = servant_placements(5, 2, 0, (impossible, ((1, 2), 2)))
    assert later.reset
    assert later.possible == (frozenset({1, 2}),)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_posterior_is_every_placement_that_could_have_given_the_fails(data: st.DataObject) -> None:
    players = data.draw(st.integers(5, 7))
    evil = {5: 2, 6: 2, 7: 3}[players]
    truth = frozenset(data.draw(st.permutations(range(1, players)))[:evil])
    quests = tuple(
        (team, data.draw(st.integers(0, len(truth.intersection(team)))))
        for team in data.draw(st.lists(st.sampled_from(list(combinations(range(players), 3))), max_size=4))
    )
    found = servant_placements(players, evil, 0, quests)
    expected = {
        frozenset(placement)
        for placement in combinations(range(1, players), evil)
        if all(len(set(placement) & set(team)) >= fails for team, fails in quests)
    }
    assert truth in expected
    assert set(found.possible) == expected
    assert sum(found.good(players)) == pytest.approx(players - evil)


# Its teams


def test_it_prefers_teams_with_itself_until_quests_say_more() -> None:
    assert set(preferred_teams(5, 2, 0, (), 2)) == {(0, 1), (0, 2), (0, 3), (0, 4)}
    after = preferred_teams(5, 2, 0, (((1, 2), 1),), 3)
    assert set(after) == {(0, 3, 4), (0, 1, 3), (0, 1, 4), (0, 2, 3), (0, 2, 4)}
    assert preferred_teams(5, 2, 0, (((1, 2), 2),), 3) == ((0, 3, 4),)


def test_ties_go_to_subsets_of_the_largest_clean_team_then_to_its_supersets() -> None:
    large = ((0, 1, 2), 0)
    assert set(preferred_teams(5, 2, 0, (large,), 2)) == {(0, 1), (0, 2)}
    small = ((0, 1), 0)
    assert set(preferred_teams(5, 2, 0, (small,), 3)) == {(0, 1, 2), (0, 1, 3), (0, 1, 4)}
    assert set(preferred_teams(5, 2, 0, (small, large), 2)) == {(0, 1), (0, 2)}, "the larger is remembered"
    assert set(preferred_teams(5, 2, 0, (large, ((0, 3, 4), 0)), 2)) == {(0, 1), (0, 2)}, (
        "an equal one does not replace it"
    )
    assert set(preferred_teams(5, 2, 0, (((3, 4), 0),), 2)) == {(0, 1), (0, 2), (0, 3), (0, 4)}, "neither: all"
    assert len(preferred_teams(5, 2, 0, (large,), 2, False)) == 4, "without memory"
    assert len(preferred_teams(5, 2, 0, (((0, 1, 2), 1),), 2)) == 2, "a failed team is no clean one"
    assert set(preferred_teams(5, 2, 0, (((0, 1, 2), 1),), 2)) == {(0, 3), (0, 4)}


def test_the_servant_votes_as_it_proposes() -> None:
    for team, chance in (((0, 1), 1.0), ((1, 2), 0.0)):
        assert ServantBot().approves(seen(at(FIVE, team=team), 0)) == chance
    assert set(ServantBot().teams(seen(at(FIVE), 0))) == {(0, 1), (0, 2), (0, 3), (0, 4)}
    assert ServantBot().passes(seen(at(FIVE), 0))
    assert ServantBot().beliefs(seen(at(FIVE), 0)) == (1, 0.5, 0.5, 0.5, 0.5)


# The others


def test_merlin_takes_good_players_and_refuses_evil_ones() -> None:
    assert set(MerlinBot().teams(seen(at(FIVE, leader=2), 2))) == {(0, 2), (1, 2)}
    assert [MerlinBot().approves(seen(at(FIVE, team=team), 2)) for team in ((0, 1), (0, 3), (3, 4))] == [1, 0, 0]
    assert MerlinBot().passes(seen(at(FIVE), 2))
    assert MerlinBot().beliefs(seen(at(FIVE), 2)) == (1, 1, 1, 0, 0)


def test_evil_wants_just_enough_evil_on_a_team() -> None:
    for bot, seat in ((MinionBot(), 3), (AssassinBot(), 4)):
        assert set(bot.teams(seen(at(FIVE, leader=seat), seat))) == {tuple(sorted((good, seat))) for good in (0, 1, 2)}
        votes = [bot.approves(seen(at(FIVE, team=team), seat)) for team in ((0, 1), (0, 3), (0, 4), (3, 4))]
        assert votes == [0, 1, 1, 1]
        assert set(bot.targets(seen(at(FIVE), seat))) == {0, 1, 2}


def test_evil_where_two_fails_are_needed() -> None:
    world = at(SEVEN, quest=3)
    assert world.knows("player 4").needed == 2
    teams = MinionBot().teams(seen(world, 4))
    assert len(teams) == len(set(teams)) == 2 * 6
    assert all(4 in team and len({5, 6} & set(team)) == 1 and len(team) == 4 for team in teams)
    votes = [MinionBot().approves(seen(at(SEVEN, team=team, quest=3), 4)) for team in ((0, 1, 2, 4), (0, 1, 5, 6))]
    assert votes == [0, 1]


@pytest.mark.parametrize(
    ("roles", "team", "quest", "minion", "assassin"),
    [
        (FIVE, (0, 3), 0, "fail", None),
        (FIVE, (0, 4), 0, None, "fail"),
        (FIVE, (3, 4), 0, "pass", "fail"),  # the Minion leaves it to the Assassin
        (SEVEN, (4, 6), 0, "fail", "fail"),  # a third evil player: the other one may not be the Assassin
        (SEVEN, (0, 1, 2, 4), 3, "pass", None),  # two fails are needed
        (SEVEN, (0, 1, 2, 6), 3, None, "pass"),
        (SEVEN, (0, 1, 4, 6), 3, "fail", "fail"),
    ],
)
def test_evils_cards(
    roles: Sequence[str], team: Sequence[int], quest: int, minion: str | None, assassin: str | None
) -> None:
    world = at(roles, team=team, quest=quest)
    world.act(dict.fromkeys(world.agents, "approve"))
    seats = {"minion": roles.index("minion"), "assassin": roles.index("assassin")}
    for role, card in (("minion", minion), ("assassin", assassin)):
        if card:
            assert AVALON_BOTS[role].passes(seen(world, seats[role])) == (card == "pass"), role


def test_the_naive_bot_is_random_within_its_side() -> None:
    world = at(FIVE, team=(0, 1))
    assert NaiveBot().approves(seen(world, 0)) == 0.5
    assert len(NaiveBot().teams(seen(world, 0))) == 10
    assert NaiveBot().passes(seen(world, 0))
    assert not NaiveBot().passes(seen(world, 3))
    assert list(NaiveBot().targets(seen(world, 4))) == [0, 1, 2, 3]
    bots = AvalonBots(world, {"servant": NaiveBot()})
    votes = Counter(bots.act([View("player 0", "", ("approve", "reject"), seed)])[0].action for seed in range(400))
    assert 140 < votes["approve"] < 260
    assert sum(votes.values()) == 400


@pytest.mark.parametrize(
    ("world", "seat", "options"),
    [
        (at(FIVE), 0, {"team 0,1", "team 0,2", "team 0,3", "team 0,4"}),
        (at(FIVE, leader=3), 3, {"team 0,3", "team 1,3", "team 2,3"}),
    ],
)
def test_equally_good_teams_are_equally_likely(world: Avalon, seat: int, options: set[str]) -> None:
    bots = AvalonBots(world)
    drawn = Counter(bots.act([View(f"player {seat}", "", None, derive_seed(n))])[0].action for n in range(1200))
    assert set(drawn) == options
    assert all(abs(count - 1200 / len(options)) < 4 * (1200 / len(options)) ** 0.5 for count in drawn.values())


def test_the_assassin_names_good_players_alike() -> None:
    world = at(FIVE)
    for team in ((0, 1), (0, 1, 2), (0, 1)):
        world.act({world.acting[0]: team_action(team)})
        world.act(dict.fromkeys(world.agents, "approve"))
        world.act(dict.fromkeys(world.acting, "pass"))
    bots = AvalonBots(world)
    drawn = Counter(bots.act([View("player 4", "", None, derive_seed(n))])[0].action for n in range(1200))
    assert set(drawn) == {"assassinate 0", "assassinate 1", "assassinate 2"}
    assert all(320 < count < 480 for count in drawn.values())


# In play


class Blind:
    """A world of which only what a seat may know can be asked."""

    def __init__(self, world: Avalon) -> None:
        self.players, self.knows = world.players, world.knows


@pytest.mark.parametrize("players", [5, 7, 10])
def test_bots_need_only_what_their_seats_may_know(players: int) -> None:
    world = Avalon(players)
    bots: AvalonBots = AvalonBots(Blind(world), seats={0: ServantBot(False)})  # type: ignore[arg-type]
    first = [play(world, dict.fromkeys(world.agents, bots), seed, hashes=False) for seed in range(8)]
    fresh = AvalonBots(world, seats={0: ServantBot(False)})
    again = [play(world, dict.fromkeys(world.agents, fresh), seed, hashes=False) for seed in reversed(range(8))]
    assert first == again[::-1], "nothing is kept between decisions or games"
    assert all(episode.ended == "over" and not episode.fallbacks for episode in first)


def test_every_role_of_the_board_has_a_bot() -> None:
    roles = (
        "merlin",
        "percival",
        "servant",
        "servant",
        "servant",
        "servant",
        "morgana",
        "mordred",
        "oberon",
        "assassin",
    )
    world = Avalon(10, roles, visibility="board")
    bots = AvalonBots(world)
    for seed in range(10):
        episode = play(world, dict.fromkeys(world.agents, bots), seed, hashes=False)
        assert (episode.ended, episode.fallbacks) == ("over", 0)


def test_unknown_roles_and_seats_are_named() -> None:
    with pytest.raises(UserError, match="Did you mean 'merlin'"):
        AvalonBots(Avalon(), {"merlyn": MerlinBot()})
    with pytest.raises(UserError, match="no seat 5; the seats are 0 to 4"):
        AvalonBots(Avalon(), seats={5: MerlinBot()})


# The exact posterior


def test_a_proposal_weighs_each_deal_by_its_leaders_rule() -> None:
    """By hand: {1,2} by 1 has weight 1 over the 6 deals with Merlin at 1, 3/2 (Servant), 4/3 for each evil role."""
    world = at(("servant", "servant", "merlin", "minion", "assassin"), leader=1, team=(1, 2))
    beliefs = BayesServantBot().beliefs(seen(world, 0))
    assert beliefs == pytest.approx((1, 15 / 31, 25 / 31, 11 / 31, 11 / 31))
    deals = BayesServantBot().deals(seen(world, 0))
    assert sum(deals.values()) == pytest.approx(1)
    assert sum(weight for deal, weight in deals.items() if deal[1] == "merlin") == pytest.approx(6 / 31)


def test_votes_and_cards_weigh_in() -> None:
    """A proposal of its own says nothing, but that 3 and 4 approve what 1 and 2 refuse does."""
    world = at(FIVE, leader=0, team=(0, 3))
    bot = BayesServantBot()
    assert bot.beliefs(seen(world, 0)) == pytest.approx((1, 0.5, 0.5, 0.5, 0.5))
    world.act({f"player {s}": "approve" if s in (0, 3, 4) else "reject" for s in range(5)})
    # Either 3 and 4 are evil, and Merlin and the Servant refuse (4 deals); or 3 is the Servant, 4 Merlin (2 deals).
    assert bot.beliefs(seen(world, 0)) == pytest.approx((1, 2 / 3, 2 / 3, 1 / 3, 1 / 3))
    assert len(bot.deals(seen(world, 0))) == 6
    world.act({"player 0": "pass", "player 3": "fail"})
    assert bot.teams(seen(world, 0)) == [(0, 1, 2)]
    assert bot.beliefs(seen(world, 0)) == pytest.approx((1, 1, 1, 0, 0))
    world.act({"player 1": "team 0,1,3"})
    assert bot.approves(seen(world, 0)) == 0.0


def test_the_bayes_servant_approves_what_is_as_likely_to_pass_as_not() -> None:
    bot = BayesServantBot()
    own, other = at(FIVE, leader=1, team=(0, 1)), at(FIVE, leader=1, team=(1, 2))
    assert bot.worth(seen(own, 0))[0, 1] == pytest.approx(9 / 17)
    assert bot.approves(seen(own, 0)) == 1
    assert bot.worth(seen(other, 0))[1, 2] == pytest.approx(9 / 31)
    assert bot.approves(seen(other, 0)) == 0


@pytest.mark.parametrize(
    ("worth", "yes"),
    [((0.9, 0.5, 0.4), {(0, 1), (0, 2)}), ((0.3, 0.3, 0.2), {(0, 1), (0, 2)}), ((0.3, 0.2, 0.1), {(0, 1)})],
)
def test_its_vote_is_by_worth(worth: Sequence[float], yes: set[tuple[int, int]]) -> None:
    teams = ((0, 1), (0, 2), (1, 2))

    class Fixed(BayesServantBot):
        def worth(self, view: AvalonView) -> dict[tuple[int, ...], float]:
            return dict(zip(teams, worth, strict=True))

    assert {team for team in teams if Fixed().approves(seen(at(FIVE, leader=1, team=team), 0))} == yes
    best = {team for team, value in zip(teams, worth, strict=True) if value == max(worth)}
    assert set(Fixed().teams(seen(at(FIVE), 0))) == best


def test_where_two_fails_are_needed_one_evil_player_does_no_harm() -> None:
    world = at(("servant", "merlin", "servant", "servant", "minion", "minion", "assassin"), quest=3)
    bot, view = BayesServantBot(dict.fromkeys(AVALON_BOTS, NaiveBot())), seen(world, 0)
    assert view.needed == 2
    evil = [{seat for seat, role in enumerate(deal) if role in AVALON_EVIL} for deal in bot.deals(view)]
    weights = list(bot.deals(view).values())
    for team, value in bot.worth(view).items():
        harmless = [weight for seats, weight in zip(evil, weights, strict=True) if len(seats & set(team)) <= 1]
        assert value == pytest.approx(sum(harmless))
    assert bot.worth(view)[0, 1, 2, 3] > sum(w for seats, w in zip(evil, weights, strict=True) if not seats & {1, 2, 3})


def test_it_can_be_told_how_the_others_play() -> None:
    """If all others toss coins, votes say nothing, and each evil player on a quest is a fail."""
    bot = BayesServantBot(dict.fromkeys(AVALON_BOTS, NaiveBot()))
    world = at(FIVE, leader=0, team=(0, 3))
    world.act({f"player {s}": "approve" if s in (0, 3, 4) else "reject" for s in range(5)})
    assert bot.beliefs(seen(world, 0)) == pytest.approx((1, 0.5, 0.5, 0.5, 0.5))
    world.act({"player 0": "pass", "player 3": "pass"})
    assert bot.beliefs(seen(world, 0)) == pytest.approx((1, 1 / 3, 1 / 3, 1, 1 / 3))


def test_records_that_no_rule_explains_leave_the_quests() -> None:
    world = at(FIVE, leader=3, team=(3, 4))
    bot = BayesServantBot()
    assert bot.beliefs(seen(world, 0)) != pytest.approx((1, 0.5, 0.5, 0.5, 0.5))
    world.act(dict.fromkeys(world.agents, "approve"))  # Merlin never approves this, nor may two of three others
    world.act({"player 3": "fail", "player 4": "fail"})
    assert bot.beliefs(seen(world, 0)) == pytest.approx((1, 1, 1, 0, 0))
    assert len(bot.deals(seen(world, 0))) == 4


def test_the_truth_is_never_ruled_out_and_probabilities_are_calibrated() -> None:
    """Planted: every game is played by the rules assumed, so that the mean weight of the truth is that expected."""

    class Noting(BayesServantBot):
        def approves(self, view: AvalonView) -> float:
            deals = self.deals(view)
            notes.append((deals.get(world.roles, 0.0), sum(weight**2 for weight in deals.values())))
            return super().approves(view)

    notes: list[tuple[float, float]] = []
    world = Avalon(preset={0: "servant"})
    bots = AvalonBots(world, seats={0: Noting()})
    for seed in range(250):
        play(world, dict.fromkeys(world.agents, bots), seed, hashes=False, limit=2)
    assert len(notes) == 250
    assert all(weight > 0 for weight, _ in notes)
    assert sum(weight for weight, _ in notes) == pytest.approx(sum(expected for _, expected in notes), rel=0.05)
    notes.clear()
    for seed in range(40):
        play(world, dict.fromkeys(world.agents, bots), seed, hashes=False)
    assert all(weight > 0 for weight, _ in notes)
    assert sum(weight for weight, _ in notes) == pytest.approx(sum(expected for _, expected in notes), rel=0.05)


def test_it_puts_itself_exactly_into_the_others_places() -> None:
    """What it supposes the others to have known, under the true deal, is what they did know."""

    class Spy(NaiveBot):
        def __init__(self) -> None:
            self.views: set[AvalonView] = set()

        def teams(self, view: AvalonView) -> Sequence[tuple[int, ...]]:
            self.views.add(view)
            return super().teams(view)

        def approves(self, view: AvalonView) -> float:
            self.views.add(view)
            return super().approves(view)

        def passes(self, view: AvalonView) -> bool:
            self.views.add(view)
            return super().passes(view)

    rounds = set()
    for seed in range(5):
        real, supposed = Spy(), Spy()
        world = Avalon(preset={0: "servant"})
        bots = AvalonBots(world, dict.fromkeys(AVALON_BOTS, real), seats={0: NaiveBot()})
        play(world, dict.fromkeys(world.agents, bots), seed, hashes=False)
        BayesServantBot(dict.fromkeys(AVALON_BOTS, supposed)).deals(seen(world, 0))
        assert real.views <= supposed.views
        rounds |= {view.round for view in real.views}
    assert {0, 1, 2} <= rounds


def wins(rules: Mapping[int, ServantBot | NaiveBot], games: int = 150) -> float:
    world = Avalon(preset={0: "servant"})
    bots = AvalonBots(world, seats=rules)
    episodes = (play(world, dict.fromkeys(world.agents, bots), seed, hashes=False) for seed in range(games))
    return sum(episode.outcome["winner"] == "good" for episode in episodes) / games


def test_more_inference_wins_more() -> None:
    naive, bot, bayes = wins({0: NaiveBot()}), wins({0: ServantBot()}), wins({0: BayesServantBot()})
    assert naive + 0.1 < bot < bayes - 0.05
