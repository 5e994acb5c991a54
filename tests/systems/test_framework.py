import importlib
import json
import math
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Self

import numpy as np
import pytest

from rolecraft.errors import RunMismatchError, UserError
from rolecraft.measures import Interval
from rolecraft.systems import Result, Study, StudyConfig, System, Verdict, entries, missing_rows, put_row, run_study
from rolecraft.systems import _registry as registry
from rolecraft.systems._registry import Entry, find_entry
from rolecraft.systems._studies import make_config, record
from rolecraft.systems._table import COLUMNS, read_outcomes, table_rows

SYSTEM = System(
    7,
    "toy-coin",
    "A Biased Coin",
    "0000.00000",
    "conditioning",
    "the biased coin falls on heads more often",
    "0.7 against 0.5",
)


@dataclass(frozen=True)
class Config(StudyConfig):
    bias: float = 0.7
    arms: tuple[str, ...] = ("biased", "fair")
    label: str | None = None
    throws: int = 50
    weights: tuple[float, ...] = field(default=(1.0,))

    def __post_init__(self) -> None:
        if not 0 <= self.bias <= 1:
            raise UserError(f"bias must lie in 0..1, got {self.bias}.")

    @classmethod
    def full(cls) -> Self:
        return cls(throws=500)


def run(config, store):
    for arm, seed in missing_rows(store, config.arms, config.seeds):
        share = config.bias if arm == "biased" else 0.5
        put_row(store, arm, seed, heads=float((np.random.default_rng(seed).random(config.throws) < share).mean()))
    return Result.read(store)


def verdict(result):
    effect = result.difference("heads", "biased", "fair")
    return Verdict.when(reproduced=effect.low > 0, effect=effect, note="a toy")


def entry_of(**attributes) -> Entry:
    module = ModuleType("toy_coin", "A biased coin (arXiv 0000.00000).\n\nExact: the coin.")
    module.__file__ = "toy_coin.py"
    for name, value in attributes.items():
        setattr(module, name, value)
    return Entry(module.SYSTEM, module)


ENTRY = entry_of(SYSTEM=SYSTEM, Config=Config, run=run, verdict=verdict)
TWO = entry_of(
    SYSTEM=replace(SYSTEM, number=8, name="toy-two"),
    STUDIES={"planted": (Config, run, verdict), "wide": Study(Config, run, verdict)},
)


@pytest.fixture
def toys(monkeypatch):
    for module in (
        registry,
        importlib.import_module("rolecraft.systems._table"),
        importlib.import_module("rolecraft.systems"),
    ):
        monkeypatch.setattr(module, "entries", lambda: (ENTRY, TWO), raising=False)


def rows(**arms):
    """Rows of one metric `m`: `rows(a={(seed, unit): value})`."""
    return Result(
        tuple(
            {"arm": arm, "seed": seed, "m": value} | ({} if unit is None else {"unit": unit})
            for arm, cells in arms.items()
            for (seed, unit), value in cells.items()
        )
    )


class TestResult:
    def test_arms_seeds_and_metrics_are_read_from_the_rows(self):
        result = Result(
            (
                {"arm": "a", "seed": 0, "unit": "q1", "x": 1.0, "text": "no metric", "z": None},
                {"arm": "b", "seed": 1, "unit": "q1", "x": 2, "y": True},
            )
        )
        assert (result.arms, result.seeds, result.metrics) == (["a", "b"], [0, 1], ["x", "y"])

    def test_differences_are_paired_by_seed_and_unit(self):
        rng = np.random.default_rng(0)
        level = {(seed, f"q{q}"): rng.normal(0, 100) for seed in range(2) for q in range(40)}
        result = rows(
            a={pair: value + 1 + rng.normal(0, 0.1) for pair, value in level.items()},
            b=dict(reversed(level.items())) | {(9, "alone"): 1e9},
        )
        effect = result.difference("m", "a", "b")
        assert effect.estimate == pytest.approx(1, abs=0.05)
        assert 0.9 < effect.low < effect.estimate < effect.high < 1.1
        assert effect.n == 40  # units are resampled, over both of their seeds
        assert result.difference("m", "a", "b", by="seed").n == 2
        back = result.difference("m", "b", "a")
        assert back.estimate == pytest.approx(-effect.estimate)

    def test_without_units_the_seed_is_the_unit(self):
        result = rows(
            a={(seed, None): 2.0 + seed for seed in range(5)}, b={(seed, None): 1.0 * seed for seed in range(5)}
        )
        effect = result.difference("m", "a", "b")
        assert (effect.estimate, effect.low, effect.high, effect.n) == (2.0, 2.0, 2.0, 5)

    def test_the_interval_covers_the_truth_as_often_as_it_says(self):
        rng = np.random.default_rng(1)
        covered = 0
        for _ in range(100):
            base = rng.normal(size=30)
            gain = rng.normal(0.5, 1, size=30)
            result = rows(
                a={(0, str(q)): base[q] + gain[q] for q in range(30)}, b={(0, str(q)): base[q] for q in range(30)}
            )
            interval = result.difference("m", "a", "b")
            covered += interval.low <= 0.5 <= interval.high
        assert 86 <= covered <= 99

    def test_ratios_are_of_means(self):
        result = rows(
            a={(seed, None): 2.0 * (seed + 1) for seed in range(6)},
            b={(seed, None): 1.0 * (seed + 1) for seed in range(6)},
        )
        ratio = result.ratio("m", "a", "b")
        assert (ratio.estimate, ratio.low, ratio.high, ratio.n) == (2.0, 2.0, 2.0, 6)

    def test_a_ratio_over_something_near_zero_has_no_interval(self):
        result = rows(
            a={(seed, None): 1.0 for seed in range(6)},
            b={(seed, None): (-1.0) ** seed * (seed + 1) for seed in range(6)},
        )
        ratio = result.ratio("m", "a", "b")
        assert math.isnan(ratio.low)
        assert math.isnan(ratio.high)

    def test_missing_values_are_left_out_pairwise(self):
        result = rows(
            a={(0, "x"): 1.0, (0, "y"): None, (0, "z"): 3.0}, b={(0, "x"): 0.0, (0, "y"): 50.0, (0, "z"): 1.0}
        )
        assert result.difference("m", "a", "b").estimate == 1.5
        assert result.mean("m", "a").n == 2

    def test_the_summary_has_a_mean_and_an_interval_per_arm_and_metric(self):
        summary = rows(a={(0, None): 1.0, (1, None): 3.0}, b={(0, None): 5.0}).summary()
        assert summary["a"]["m"]["mean"] == 2.0
        assert summary["a"]["m"]["low"] <= 2.0 <= summary["a"]["m"]["high"]
        assert summary["b"]["m"] == {"mean": 5.0, "low": None, "high": None, "n": 1}
        json.dumps(summary, allow_nan=False)

    def test_mistakes_are_said(self):
        result = rows(alpha={(0, None): 1.0}, beta={(1, None): 1.0})
        with pytest.raises(UserError, match=r"arm 'alpho' is not in the rows \(alpha, beta\). Did you mean 'alpha'"):
            result.difference("m", "alpho", "beta")
        with pytest.raises(UserError, match="metric 'n'"):
            result.mean("n", "alpha")
        with pytest.raises(UserError, match="have no row of the same seed and unit"):
            result.difference("m", "alpha", "beta")
        with pytest.raises(UserError, match="by: expected 'unit' or 'seed'"):
            result.mean("m", "alpha", by="role")


class TestVerdict:
    @pytest.mark.parametrize(
        ("reproduced", "inconclusive", "expected"),
        [
            (True, False, "reproduced"),
            (False, False, "not reproduced"),
            (False, True, "inconclusive"),
            (True, True, "inconclusive"),
        ],
    )
    def test_decides(self, reproduced, inconclusive, expected):
        effect = Interval(1.0, 0.5, 1.5, 9)
        assert Verdict.when(reproduced=reproduced, inconclusive=inconclusive, effect=effect).verdict == expected

    def test_an_effect_without_an_interval_is_inconclusive(self):
        effect = Interval(1.0, float("nan"), float("nan"), 1)
        assert Verdict.when(reproduced=True, effect=effect).verdict == "inconclusive"


class TestConfig:
    def test_fields_are_set_from_text(self):
        settings = ["bias=0.6", "arms=fair, biased", "label=none", "throws=7", "weights=(1,2.5)"]
        config = make_config(Config, seeds=[4, 5], settings=settings)
        assert config == Config((4, 5), 0.6, ("fair", "biased"), None, 7, (1.0, 2.5))

    def test_full_is_the_papers_size_and_can_be_changed(self):
        assert make_config(Config, full=True, settings=["bias=0.9"]) == Config(throws=500, bias=0.9)
        with pytest.raises(UserError, match="no --full size"):
            make_config(StudyConfig, full=True)

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("bais=0.6", "fields seeds, bias, .*Did you mean 'bias'"),
            ("bias", "expected FIELD=VALUE"),
            ("throws=many", "--set throws=many: .*expected int"),
            ("weights=1,x", "--set weights=1,x: "),
            ("bias=7", r"bias must lie in 0\.\.1, got 7"),
        ],
    )
    def test_mistakes_are_said(self, setting, message):
        with pytest.raises(UserError, match=message):
            make_config(Config, settings=[setting])


class TestRunning:
    def test_a_study_is_run_judged_and_kept(self, tmp_path):
        outcome = run_study(ENTRY, "small", Config(), tmp_path / "run")
        assert outcome.verdict == "reproduced"
        assert outcome.effect["low"] > 0
        assert outcome.effect["n"] == 3
        assert outcome.seeds == [0, 1, 2]
        assert outcome.rows["fair"]["heads"]["n"] == 3
        assert json.loads((tmp_path / "run" / "outcome.json").read_text()) == json.loads(json.dumps(vars(outcome)))

    def test_an_interrupted_study_does_only_what_is_missing(self, tmp_path):
        calls = []
        first = entry_of(SYSTEM=SYSTEM, Config=Config, run=_stops_after(3, calls), verdict=verdict)
        with pytest.raises(KeyboardInterrupt):
            run_study(first, "small", Config(), tmp_path / "run")
        assert calls == [("biased", 0), ("fair", 0), ("biased", 1)]
        calls.clear()
        second = entry_of(SYSTEM=SYSTEM, Config=Config, run=_stops_after(99, calls), verdict=verdict)
        assert run_study(second, "small", Config(), tmp_path / "run").verdict == "reproduced"
        assert calls == [("fair", 1), ("biased", 2), ("fair", 2)]

    def test_another_configuration_is_refused(self, tmp_path):
        run_study(ENTRY, "small", Config(), tmp_path / "run")
        with pytest.raises(RunMismatchError, match=r"bias: the run has 0\.7, you gave 0\.6"):
            run_study(ENTRY, "small", Config(bias=0.6), tmp_path / "run")

    def test_an_unknown_study_is_said(self, tmp_path):
        with pytest.raises(UserError, match=r"no study 'plantd' \(studies: planted, wide\). Did you mean 'planted'"):
            run_study(TWO, "plantd", Config(), tmp_path / "run")


def _stops_after(count, calls):
    def run(config, store):
        for done, (arm, seed) in enumerate(missing_rows(store, config.arms, config.seeds)):
            if done == count:
                raise KeyboardInterrupt
            calls.append((arm, seed))
            put_row(store, arm, seed, heads=0.7 if arm == "biased" else 0.5)
        return Result.read(store)

    return run


class TestTable:
    def test_studies_of_one_system_share_a_file_and_have_a_row_each(self, toys, tmp_path):
        results = tmp_path / "results"
        for number, name in enumerate(("wide", "planted")):
            path = record(TWO, run_study(TWO, name, Config(), tmp_path / str(number)), results)
        assert path == results / "008-toy-two.json"
        assert list(read_outcomes(results)["008-toy-two"]) == ["planted", "wide"]
        table = table_rows(results)
        assert [(row["number"], row["study"], row["verdict"]) for row in table] == [
            (7, "small", "not run"),
            (8, "planted", "reproduced"),
            (8, "wide", "reproduced"),
        ]
        assert set(COLUMNS) <= set(table[0])
        assert table[0]["ours"] is None
        assert table[1]["interval"][0] < table[1]["ours"] < table[1]["interval"][1]
        assert table[1]["seeds"] == 3
        json.dumps(table, allow_nan=False)

    def test_a_damaged_record_is_said(self, toys, tmp_path):
        (tmp_path / "007-toy-coin.json").write_text("[]")
        with pytest.raises(UserError, match=r"007-toy-coin\.json: expected the key 'studies'"):
            table_rows(tmp_path)
        with pytest.raises(UserError, match="no such folder"):
            table_rows(tmp_path / "nowhere")


class TestRegistry:
    @pytest.mark.parametrize("name", ["toy-coin", "7", "007", "007-toy-coin"])
    def test_a_system_is_found_by_name_and_number(self, toys, name):
        assert find_entry(name) is ENTRY

    def test_an_unknown_system_is_said(self, toys):
        with pytest.raises(UserError, match=r"'toy-coim' is unknown .*Did you mean 'toy-coin'"):
            find_entry("toy-coim")

    def test_our_systems_are_well_formed(self):
        systems = [entry.system for entry in entries()]
        assert len({system.number for system in systems}) == len({system.name for system in systems}) == len(systems)
        assert [system.number for system in systems] == sorted(system.number for system in systems)
        for entry in entries():
            system = entry.system
            assert Path(entry.module.__file__).parent.name == system.family
            assert system.claim
            assert system.published
            assert system.arxiv in entry.module.__doc__
            for study in entry.studies.values():
                assert isinstance(study.config(), StudyConfig)
                assert study.config.__dataclass_params__.frozen
                assert make_config(study.config, seeds=(7,), settings=["seeds=8"]).seeds == (8,)

    def test_our_records_belong_to_our_systems(self):
        known = {entry.system.id: set(entry.studies) for entry in entries()}
        for system, studies in read_outcomes().items():
            assert set(studies) <= known[system]

    def test_importing_the_systems_imports_no_heavy_library(self):
        code = (
            "import sys; from rolecraft.systems import entries; entries();"
            "print([n for n in ('torch', 'transformers', 'pandas', 'scipy', 'sklearn', 'ray') if n in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"


def test_a_paper_without_an_arxiv_number_is_named_by_its_place():
    assert SYSTEM.source == "arXiv 0000.00000"
    assert replace(SYSTEM, arxiv="IEEE CEC 2020").source == "IEEE CEC 2020"
