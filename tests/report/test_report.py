"""The page: self-contained, safe with hostile texts, and whole whatever is missing."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from rolecraft.report import write_report
from rolecraft.report._page import render, script_json
from rolecraft.roles import Inventory
from rolecraft.screening import ScreenResults
from tests.report import planted

VOID = {"meta", "link", "input", "br", "path", "circle", "use"}
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> & \u2028 \"quoted\" {{ 7*7 }}"


class Page(HTMLParser):
    """Elements with their attributes, balanced tags checked, and the text of each element by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append((self.elements[-1][1].get("type", ""), text))
        elif self.open and self.open[-1] != "style":
            self.words.append(text)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in wanted.items())]

    @property
    def data(self) -> dict:
        (text,) = [text for kind, text in self.scripts if kind == "application/json"]
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the data"))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def results() -> ScreenResults:
    return planted.results()


@pytest.fixture(scope="module")
def page(results: ScreenResults) -> Page:
    return Page(render(results))


def test_every_role_has_a_row_and_a_section(results: ScreenResults, page: Page) -> None:
    ids = list(results.verdicts["role"])
    assert sorted(row["data-role"] for row in page.all("tr") if "data-role" in row) == sorted(ids)
    assert {section["id"] for section in page.all("details")} == {f"role-{role}" for role in ids}
    anchors = {a["href"][1:] for a in page.all("a")}
    assert anchors <= {attributes["id"] for _, attributes in page.elements if "id" in attributes}


def test_rows_are_sorted_by_verdict_then_gain(results: ScreenResults, page: Page) -> None:
    order = [row["data-role"] for row in page.all("tr") if "data-role" in row]
    decided = results.verdicts.set_index("role").loc[order]
    rank = decided["verdict"].map({"PASS": 0, "PASS_PROMPT_ONLY": 1, "FLAG": 2})
    assert rank.is_monotonic_increasing
    for _, block in decided.groupby(rank):
        assert block["gain"].dropna().is_monotonic_decreasing


def test_nothing_is_loaded_from_anywhere(results: ScreenResults, page: Page) -> None:
    text = render(results)
    assert not re.search(r"https?://|url\(|@import", text)
    for tag, attributes in page.elements:
        assert not any(name == "src" or name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith(("#", "data:")), tag


def test_the_policy_allows_the_page_s_own_script_and_no_other(page: Page) -> None:
    import base64
    import hashlib

    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    (script,) = [text for kind, text in page.scripts if not kind]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_the_finding_counts_the_verdicts(results: ScreenResults, page: Page) -> None:
    counts = results.verdicts["verdict"].value_counts()
    assert f"{counts['PASS']} of 12 roles pass by steering, {counts['PASS_PROMPT_ONLY']} only by prompt" in page.text


def test_cells_show_the_paired_gain_over_the_baseline(results: ScreenResults, page: Page) -> None:
    decided = results.verdicts.set_index("role")
    role = "rising-0"
    position = next(i for i, (tag, a) in enumerate(page.elements) if tag == "tr" and a.get("data-role") == role)
    heat = [a for _, a in page.elements[position : position + 30] if "heat" in a.get("class", "")][:4]
    assert [cell["class"] for cell in heat] == ["heat", "heat", "heat", "heat chosen"]
    assert float(heat[3]["data-v"]) == pytest.approx(decided.loc[role, "gain"])


def test_cells_whose_text_breaks_are_marked(page: Page) -> None:
    ill = [a["title"] for a in page.all("td") if "ill" in a.get("class", "").split()]
    assert ill == [f"Looping at strength {s}, repetitive, degenerate" for s in ("1.5", "2", "2.5")]


def test_every_reason_comes_with_what_to_do(page: Page) -> None:
    assert "Too few pairs of responses were kept" in page.text
    assert "1 of 16 pairs were kept; 4 are required." in page.text
    assert "Give the role more questions and instructions" in page.text
    assert "The curve is still highest at the largest strength: extend --strengths" in page.text


def test_the_drawn_numbers_are_those_of_the_curves(results: ScreenResults, page: Page) -> None:
    drawn = page.data["roles"]["peaked-1"]["curves"]
    curve = results.curves
    wanted = curve[(curve["role"] == "peaked-1") & (curve["arm"] == "role") & (curve["strength"] == 1.5)]
    assert np.allclose(drawn["role"]["1.5"], wanted[["mean", "low", "high"]], atol=0.051)
    assert set(drawn) == {"role", "axis", "random", "shuffled", "baseline", "prompted"}


def test_examples_are_the_most_the_middling_and_the_least(results: ScreenResults, page: Page) -> None:
    examples = page.data["roles"]["rising-0"]["examples"]
    gains = []
    for example in examples:
        scores = {(arm, strength): score for arm, strength, score, _, _ in example["answers"]}
        assert set(scores) == {("prompted", 0), ("baseline", 0), *(("role", s) for s in (1, 1.5, 2, 2.5))}
        gains.append(scores["role", 2.5] - scores["baseline", 0])
    assert gains == sorted(gains, reverse=True)
    assert [example["label"] for example in examples] == ["largest gain", "middling", "smallest gain"]


def test_a_failed_answer_says_why(page: Page) -> None:
    notes = {note for example in page.data["roles"]["failed-8"]["examples"] for *_, note in example["answers"]}
    assert notes == {"", "the server gave no answer after 4 tries"}


def test_population_margin_is_the_difference_of_the_gains(page: Page) -> None:
    whole = page.data["population"]
    for arm, series in whole["margins"].items():
        for i, margin in enumerate(series):
            assert margin[1] <= margin[0] <= margin[2]
            assert margin[0] == pytest.approx(whole["gain"]["role"][i][0] - whole["gain"][arm][i][0], abs=0.01)
    assert sum(whole["chosen"]) == 6


def test_hostile_texts_stay_texts() -> None:
    results = planted.results(3, kinds=("rising",), seeds=(0,))
    role = results.inventory.roles[0]
    hostile = role.edited(name=f"Rising {HOSTILE}", description=HOSTILE, family=HOSTILE, tags=(HOSTILE,))
    table = results.table.assign(answer=HOSTILE)
    verdicts = results.verdicts.copy()
    verdicts.loc[2, ["verdict", "strength", "reason", "failed"]] = ["FLAG", np.nan, "x", HOSTILE]
    attacked = ScreenResults(
        **vars(results)
        | {
            "inventory": Inventory(HOSTILE, "1", (hostile, *results.inventory.roles[1:])),
            "table": table,
            "verdicts": verdicts,
            "notes": (HOSTILE,),
            "run_id": HOSTILE,
        }
    )
    page = Page(render(attacked))
    assert len(page.scripts) == 2
    assert not page.all("img")
    assert page.data["texts"] == [HOSTILE]
    assert page.text.count("{{ 7*7 }}") > 5


def test_script_json_holds_no_markup_and_no_nan() -> None:
    assert json.loads(script_json({"a": HOSTILE})) == {"a": HOSTILE}
    assert not set("<>&\u2028") & set(script_json(HOSTILE))
    with pytest.raises(ValueError, match="JSON"):
        script_json(float("nan"))


def test_missing_scores_leave_gaps() -> None:
    results = planted.results(4, seeds=(0,))
    table = results.table.copy()
    table.loc[table["arm"] == "role", list(planted.DIMENSIONS)] = np.nan
    table["perplexity"] = None
    curves = results.curves[results.curves["arm"] != "role"]
    text = render(
        ScreenResults(**vars(results) | {"table": table, "curves": curves, "facts": {"judge_agreement": np.nan}})
    )
    page = Page(text)
    assert all("role" not in role["curves"] for role in page.data["roles"].values())
    assert page.data["population"]["gain"]["role"] == [None] * 4
    assert "nan" not in page.text.lower().split()


@pytest.mark.parametrize(
    "options",
    [
        {"strengths": (1.5,), "seeds": (0,)},
        {"controls": (), "seeds": (0,)},
        {"strengths": (-1.0, 1.0), "controls": ("random",)},
        {"kinds": ("no-direction",), "seeds": (0,)},
        {"kinds": ("failed",), "seeds": (0,), "questions": 1},
    ],
    ids=["one-strength", "no-controls", "negative-strength", "no-directions", "one-question-failed"],
)
def test_thin_screens_give_whole_pages(options: dict) -> None:
    results = planted.results(3, **options)
    page = Page(render(results))
    assert len(page.all("details")) == 3
    assert bool(page.all("div", id="chart-margin")) == bool(results.config["control"])
    assert bool(page.all("div", id="chart-pca")) == (options.get("kinds") != ("no-direction",))
    assert ("One seed was run" in page.text) == (len(results.config["seeds"]) == 1)


def test_a_null_direction_space_is_drawn_without_figures() -> None:
    results = planted.results(3, kinds=("rising",), seeds=(0,))
    space = results.geometry
    assert space is not None
    flat = type(space)(
        **vars(space)
        | {
            "components": np.full((3, 2), np.nan),
            "explained": (np.nan,) * 3,
            "granularity": None,
            "effective_rank": np.nan,
        }
    )
    page = Page(render(ScreenResults(**vars(results) | {"geometry": flat})))
    assert (page.data["space"]["explained"], page.data["space"]["rank"]) == ([], None)


def test_writing_replaces_the_old_report(tmp_path, results: ScreenResults) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    assert write_report(results, path) == path
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_long_answers_do_not_swell_the_page() -> None:
    results = planted.results(12, seeds=(0,))
    rng = np.random.default_rng(0)
    long = [" ".join(map(str, rng.integers(0, 10**6, 3000))) for _ in range(40)]
    table = results.table.assign(answer=[f"{n} {long[n % 40]}" for n in range(len(results.table))])
    page = render(ScreenResults(**vars(results) | {"table": table}))
    texts = Page(page).data["texts"]
    assert all(text.endswith("…") and len(text) <= 2001 for text in texts)
    assert len(page) < 1_200_000


@pytest.mark.slow
def test_a_full_inventory_stays_small_and_quick(tmp_path) -> None:
    results = planted.results(275, seeds=(0,), questions=6, draws=100)
    copies = [results.table.assign(question=results.table["question"] + f"-{n}") for n in range(10)]
    table = pd.concat([results.table, *copies])
    long = {text: (text + " and so on, as one does") * 20 for text in table["answer"].unique()}
    table["answer"] = table["answer"].map(long)
    start = time.process_time()
    path = write_report(ScreenResults(**vars(results) | {"table": table}), tmp_path / "report.html")
    assert time.process_time() - start < 10
    assert path.stat().st_size < 3_000_000
