"""Authority bias: do titles shift a judging panel, and by holding or by switching? (arXiv 2601.04790).

Exact: ChatEval's turn rules (in turn, all messages visible, 12 single turns, scores in everyone's last turn); three of
French and Raven's bases of power (legitimate, referent, expert) against the same panel with the title removed; clear
and hedged statements.
Adapted: the paper's roles, group size and formulas were not available: three referees, our own titles and the measures
of `rolecraft.measures.measure_authority`. The planted study plays scripted referees, who read titles and stances from
their prompts, with rates that are known. SmolLM2-135M takes the stance of higher log-probability in templated words;
the titled referee opens against what the model itself leans to, so that there is something to shift. On record it took
the answer shown first (or a tie) in every stance and both orders: its zeros are position bias, no finding on titles.
Small: `rolecraft systems run authority-bias`. Paper's size: `--study smollm2 --full --set model=openai:NAME@URL --set
data=FILE` with ChatEval's file (expected: expert and referent above legitimate, by holding, none where hedged).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, load_model
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, row_key
from rolecraft.systems.measures._authority_panel import (
    CONTROL,
    SEATS,
    TITLES,
    ModelReferee,
    PlantedReferee,
    flipped,
    option_margins,
    seat_panel,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rolecraft._run import RunStore
    from rolecraft.measures import AuthorityReport, Interval, PanelRates, PanelTalk
    from rolecraft.worlds import Discussion, JudgedItem, Table

SYSTEM = System(
    number=42,
    name="authority-bias",
    title="Belief in Authority: Impact of Authority in Multi-Agent Evaluation Framework",
    arxiv="2601.04790",
    family="measures",
    claim="a title shifts a judging panel's verdict because its bearer holds firm, not because others conform, and "
    "only where the bearer states a position",
    published="expert and referent power stronger than legitimate; no influence without a clear statement (GPT-4o, "
    "DeepSeek R1; no figures in the abstract)",
)

# (a) Planted truth: does the measure find the cause?


@dataclass(frozen=True)
class PlantedConfig(StudyConfig):
    """Scripted panels whose rates are known."""

    seeds: tuple[int, ...] = tuple(range(10))
    items: int = 200
    """Discussions with the title, and as many without, per world and seed."""
    turns: int = 12
    """Single turns. Paper: 12."""
    h_auth: float = 0.95
    """Hold of the authority in the steadfast world; elsewhere it holds like the others."""
    h_gen: float = 0.6
    """Hold of the others in all worlds."""
    c_gen: float = 0.2
    """Pull of a general referee in all worlds."""

    def __post_init__(self) -> None:
        """Refuse sizes and rates that leave nothing to measure."""
        if self.items < 2 or self.turns < 2 * len(SEATS):
            raise UserError(f"items must be at least 2 and turns at least 6, got {self.items} and {self.turns}.")
        if not 0 <= self.h_gen < self.h_auth <= 1 or not 0 < self.c_gen < 1:
            raise UserError(
                f"expected 0 <= h_gen < h_auth <= 1 and 0 < c_gen < 1, got {self.h_gen}, {self.h_auth}, {self.c_gen}."
            )


WORLDS = ("steadfast", "conformity", "hedged", "no-label")
"""The authority holds firm; others switch to it; controls: both, but it never takes a side; the title is not there.

Where it never takes a side the paired draws make the influence 0 exactly, unless the title acts by another way than
through stances; only the last control is an estimate.
"""


def planted_rates(config: PlantedConfig) -> dict[str, PanelRates]:
    """Return each world's rates; the pull of the conformity world gives the influence of the steadfast one.

    Raises:
        UserError: If no pull does.
    """
    from rolecraft.measures import PanelRates

    h, c = config.h_gen, config.c_gen
    steadfast = PanelRates(config.h_auth, h, c, c)
    pulls = np.linspace(c, 1, 401)
    gaps = planted_influence(PanelRates(h, h, pulls, c), config) - planted_influence(steadfast, config)
    if gaps[-1] < 0:
        raise UserError(f"no pull up to 1 has the influence of h_auth {config.h_auth}; lower h_auth or c_gen.")
    pull = float(np.interp(0, gaps, pulls))
    return {
        "steadfast": steadfast,
        "conformity": PanelRates(h, h, pull, c),
        "hedged": PanelRates(config.h_auth, h, pull, c),
        "no-label": PanelRates(h, h, c, c),
    }


def planted_influence(rates: PanelRates, config: PlantedConfig) -> NDArray[np.float64]:
    """Return the exact influence in a planted world, of shape (draws,)."""
    from rolecraft.measures import PanelStart, split_influence

    n = len(SEATS)
    starts = [
        PanelStart(n, config.turns - n, place, sides)
        for place in range(n)
        for sides in product((False, True), repeat=n)
        if sides[place]
    ]
    return split_influence(rates, starts).total


def planted_talk(
    config: PlantedConfig, rates: PanelRates, world: str, item: JudgedItem, unit: int, seed: int, titled: bool
) -> PanelTalk:
    """Play one discussion; with and without the title it draws the same numbers, except in the `no-label` world."""
    from rolecraft._run import derive_seed
    from rolecraft.measures import PanelTalk
    from rolecraft.worlds import play

    fresh = titled and world == "no-label"
    rng = np.random.default_rng(derive_seed("authority-bias", world, seed, unit, fresh))
    place, swapped = unit % len(SEATS), bool(rng.integers(2))
    first = {seat: ("A1", "A2")[int(rng.integers(2))] for seat in SEATS}
    authority, hedged = SEATS[place], world == "hedged"
    kind = "expert" if titled and world != "no-label" else CONTROL
    panel = seat_panel(item, kind, place, turns=config.turns, swapped=swapped)
    referee = PlantedReferee(rates, first, rng, authority if hedged else None)
    play(panel, dict.fromkeys(SEATS, referee), seed, hashes=False)
    return PanelTalk(
        item=f"{item.id}/{seed}/{unit}", label=world if titled else CONTROL, authority=authority, said=panel.stances,
        verdict=panel.outcome()["verdict"], clear=not hedged, position=flipped(first[authority], swapped),
    )  # fmt: skip


def run_planted(config: PlantedConfig, store: RunStore) -> Result:
    """Play every world, with the title and without, once per seed."""
    from rolecraft.worlds import load_judged_items

    items, rates = load_judged_items(), planted_rates(config)
    arms = {f"{world}/{title}": (world, title == "titled") for world in WORLDS for title in ("titled", "untitled")}
    for seed in config.seeds:
        for key in store.missing("cells", [row_key(arm, seed) for arm in arms]):
            arm = key.rpartition("/")[0]
            world, titled = arms[arm]
            talks = [
                planted_talk(config, rates[world], world, items[unit % len(items)], unit, seed, titled)
                for unit in range(config.items)
            ]
            store.put_many(
                ROWS, {row_key(arm, seed, talk.item): talk_row(talk, arm, seed, talk.item) for talk in talks}
            )
            store.put("cells", key, {"rows": len(talks)})
    return Result.read(store)


def talk_row(talk: PanelTalk, arm: str, seed: int, unit: str) -> dict[str, Any]:
    """Return a talk as a row of the study; `talk_of` reads it."""
    return {"arm": arm, "seed": seed, "unit": unit, "won": float(talk.verdict == talk.held), **asdict(talk)}


def talk_of(row: Mapping[str, Any]) -> PanelTalk:
    """Return the talk of a row."""
    from rolecraft.measures import PanelTalk

    said = tuple((str(agent), stance) for agent, stance in row["said"])
    return PanelTalk(**{field.name: row[field.name] for field in fields(PanelTalk)} | {"said": said})


def verdict_planted(result: Result) -> Verdict:
    """Demand 70 % of the influence for the planted cause in both worlds, and no influence in the controls."""
    from rolecraft.measures import Interval, measure_authority

    effects = {}
    for world in WORLDS:
        talks = [talk_of(row) for row in result.rows if str(row["arm"]).startswith(f"{world}/")]
        effects[world] = measure_authority(talks).effect(world, clear=world != "hedged")
    held, switched = effects["steadfast"].hold_share, effects["conformity"].hold_share
    shares = {
        "steadfast": held,
        "conformity": Interval(1 - switched.estimate, 1 - switched.high, 1 - switched.low, switched.n),
    }
    note = (
        "effect: share of the planted cause in the weaker world; "
        + ", ".join(f"{world} {share}" for world, share in shares.items())
        + "; influence (planted equal in the first two): "
        + ", ".join(f"{world} {effect.influence}" for world, effect in effects.items())
        + "; rates found: "
        + ", ".join(f"{world} {name} {effects[world].rates[name]}" for world, name in _TELLING)
        + "; control: influence without a title"
    )
    return decide_planted(shares, {world: effect.influence for world, effect in effects.items()}, note)


def decide_planted(shares: Mapping[str, Interval], influence: Mapping[str, Interval], note: str = "") -> Verdict:
    """Decide from the share of the planted cause (of two worlds) and the influence (of all four)."""
    weaker = min(shares.values(), key=lambda share: share.estimate)
    most = all(share.low >= 0.7 for share in shares.values())
    sound = all(influence[world].low > 0 for world in shares)
    sound = sound and all(_near_zero(influence[world]) for world in ("hedged", "no-label"))
    return Verdict.when(
        reproduced=sound and most,
        inconclusive=sound and not most and weaker.estimate >= 0.7,
        effect=weaker,
        control=influence["no-label"],
        note=note,
    )


_TELLING = (("steadfast", "h_auth"), ("steadfast", "c_auth"), ("conformity", "h_auth"), ("conformity", "c_auth"))


def _near_zero(interval: Interval, near: float = 0.02) -> bool:
    return interval.low <= 0 <= interval.high or abs(interval.estimate) < near


# (b) A language model


@dataclass(frozen=True)
class SmolConfig(StudyConfig):
    """Panels of the embedded model."""

    model: str = "local:smollm2"
    """Paper: GPT-4o and DeepSeek R1."""
    items: int = 6
    """Questions per seed, each with its answers in both orders. Paper: not known."""
    turns: int = 6
    """Single turns: a first and a last word each. Paper: 12."""
    data: str = ""
    """A file in ChatEval's layout instead of the bundled questions."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to measure."""
        if self.items < 1 or self.turns < 2 * len(SEATS):
            raise UserError(f"items must be at least 1 and turns at least 6, got {self.items} and {self.turns}.")

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size; name a served model that gives log-probabilities."""
        return cls(items=80, turns=12)


ARMS = tuple(f"{kind}/{manner}" for kind in TITLES for manner in ("clear", "hedged"))


def run_smollm2(config: SmolConfig, store: RunStore) -> Result:
    """Load the model and play every panel."""
    if store.missing("cells", [row_key(arm, seed) for seed in config.seeds for arm in ARMS]):
        run_on(load_model(config.model), config, store)
    return Result.read(store)


def run_on(model: LanguageModel, config: SmolConfig, store: RunStore) -> Result:
    """Play what is missing with this model, all discussions of an arm and seed side by side."""
    from rolecraft.worlds import load_chateval, load_judged_items

    items = load_chateval(config.data) if config.data else load_judged_items()
    for seed in config.seeds:
        for key in store.missing("cells", [row_key(arm, seed) for arm in ARMS]):
            arm = key.rpartition("/")[0]
            rows = _play_cell(model, config, arm, seed, items)
            store.put_many(ROWS, {row_key(arm, seed, row["unit"]): row for row in rows})
            store.put("cells", key, {"rows": len(rows)})
    return Result.read(store)


def _play_cell(
    model: LanguageModel, config: SmolConfig, arm: str, seed: int, items: Sequence[JudgedItem]
) -> list[dict[str, Any]]:
    from rolecraft._run import derive_seed
    from rolecraft.measures import PanelTalk
    from rolecraft.worlds import Rules, Table, play_all

    kind, _, manner = arm.partition("/")
    rng = np.random.default_rng(derive_seed("authority-bias", "items", seed))
    chosen = [items[int(index)] for index in rng.permutation(len(items))[: config.items]]
    places = [int(place) for place in rng.integers(len(SEATS), size=len(chosen))]
    general = ModelReferee(model)
    openers = {side: ModelReferee(model, side, manner == "hedged") for side in ("A1", "A2")}
    tables: list[Table] = []
    panels: list[tuple[Discussion, str, str]] = []
    for (item, place), swapped in product(zip(chosen, places, strict=True), (False, True)):
        panel = seat_panel(item, kind, place, turns=config.turns, swapped=swapped)
        bare = seat_panel(item, CONTROL, place, turns=config.turns, swapped=swapped)
        bare.reset(0)
        opening = "A2" if option_margins(model, [bare.observe(SEATS[0])])[0] >= 0 else "A1"
        policies = {seat: openers[opening] if seat == SEATS[place] else general for seat in SEATS}
        tables.append(Table(panel, policies, derive_seed("authority-bias", seed, item.id, swapped)))
        panels.append((panel, SEATS[place], flipped(opening, swapped)))
    episodes = play_all(tables, Rules(hashes=False))
    rows = []
    for (panel, authority, position), episode in zip(panels, episodes, strict=True):
        said, verdict = panel.stances, panel.outcome()["verdict"]
        talk = PanelTalk(panel.item.id, kind, authority, said, verdict, manner == "clear", position)
        unit = f"{panel.item.id}/{'swapped' if panel.swapped else 'plain'}"
        margins = [turn.notes["margin"] for turn in episode.turns]
        rows.append(talk_row(talk, arm, seed, unit) | {"margins": margins})
    return rows


def talks_of(result: Result, pooled: bool = False) -> list[PanelTalk]:
    """Return the rows as talks; `pooled` gives all titles one label."""
    talks = [talk_of(row) for row in result.rows]
    return [replace(talk, label="title") if pooled and talk.label != CONTROL else talk for talk in talks]


def verdict_smollm2(result: Result) -> Verdict:
    """Demand influence of clear titles that holding explains better than switching, and none of hedging ones.

    A run that could not have shown either is inconclusive: see `open_question`.
    """
    from rolecraft.measures import measure_authority

    report, pooled = measure_authority(talks_of(result)), measure_authority(talks_of(result, pooled=True))
    clear, hedged = pooled.effect("title"), pooled.effect("title", clear=False)
    found = clear.influence.low > 0 and clear.hold.estimate > clear.switch.estimate and not hedged.influence.low > 0
    unsettled = open_question(report, pooled)
    note = (
        (f"{unsettled}; " if unsettled else "")
        + "influence by type: "
        + ", ".join(f"{kind} {report.effect(kind).influence}" for kind in TITLES if kind != CONTROL)
        + f"; all titles: hold {clear.hold}, switch {clear.switch}, the bearer keeps its stance {clear.steadfast} with "
        f"and {clear.steadfast_control} without the title; control: hedging titles"
        + "".join(f"; {name} undefined: {reason}" for name, reason in clear.reasons.items())
    )
    return Verdict.when(
        reproduced=found, inconclusive=bool(unsettled), effect=clear.influence, control=hedged.influence, note=note
    )


def open_question(report: AuthorityReport, pooled: AuthorityReport) -> str:
    """Return why a run can speak neither for the claim nor against it, or an empty text.

    Either no title moved one verdict in any stance, so that the hedged control cannot differ from the clear titles; or
    a rate is undefined, so that holding and switching cannot be told apart.
    """
    shifts = [effect.influence for effect in report.effects]
    if all(shift.estimate == shift.low == shift.high == 0 for shift in shifts):
        return "open: no title moved a single verdict in any stance, so the control cannot differ from the claim"
    clear = pooled.effect("title")
    if math.isnan(clear.hold.estimate) or math.isnan(clear.switch.estimate):
        return f"open: holding and switching cannot be told apart ({clear.reasons['modelled']})"
    return ""


STUDIES = {
    "planted": (PlantedConfig, run_planted, verdict_planted),
    "smollm2": (SmolConfig, run_smollm2, verdict_smollm2),
}
