import csv
import json

import pytest

from rolecraft._run import RunStore, export_rows
from rolecraft.errors import UserError

ROWS = {
    "a": {"answer": 'Arr, "ye"\nscallywag', "scores": {"overall": 80.5, "social": None}, "tokens": [1, 2], "words": 3},
    "b": {"answer": "Ja ö", "scores": {"overall": 10}, "note": "late"},
}


@pytest.fixture
def run(tmp_path):
    with RunStore.open(tmp_path / "run", "screen", {"model": "local:smollm2"}) as store:
        store.put_many("answers", ROWS)
        store.put("plain", "x", 3)
        yield store


def test_jsonl_keeps_the_rows_as_they_are(run, tmp_path):
    assert export_rows(run, "answers", tmp_path / "rows.jsonl") == 2
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert lines == [{"key": key, **row} for key, row in ROWS.items()]
    export_rows(run, "plain", tmp_path / "plain.jsonl")
    assert json.loads((tmp_path / "plain.jsonl").read_text()) == {"key": "x", "value": 3}


def test_csv_has_a_column_per_field(run, tmp_path):
    export_rows(run, "answers", tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["key", "answer", "scores.overall", "scores.social", "tokens", "words", "note"]
    assert rows[0]["answer"] == ROWS["a"]["answer"]
    assert rows[0]["tokens"] == "[1, 2]"
    assert (rows[1]["scores.overall"], rows[1]["scores.social"], rows[1]["note"]) == ("10", "", "late")


def test_parquet_has_the_same_columns(run, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    export_rows(run, "answers", tmp_path / "rows.parquet")
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert list(frame["scores.overall"]) == [80.5, 10.0]
    assert frame["note"].isna().tolist() == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".eval", ".json"])
def test_inspect_reads_our_log(run, tmp_path, suffix):
    log_module = pytest.importorskip("inspect_ai.log")
    export_rows(run, "answers", tmp_path / f"log{suffix}")
    log = log_module.read_eval_log(str(tmp_path / f"log{suffix}"))
    assert log.eval.task == "rolecraft/screen/answers"
    assert log.eval.model == "local:smollm2"
    assert [sample.id for sample in log.samples] == ["a", "b"]
    assert log.samples[0].output.completion == ROWS["a"]["answer"]
    assert {name: score.value for name, score in log.samples[0].scores.items()} == {"overall": 80.5}
    assert log.samples[1].metadata == {"note": "late"}


def test_mistakes_are_said(run, tmp_path):
    with pytest.raises(
        UserError, match=r"stage 'answer' has no rows \(stages: answers, plain\). Did you mean 'answers'"
    ):
        export_rows(run, "answer", tmp_path / "rows.csv")
    with pytest.raises(UserError, match=r"expected one of \.jsonl, .* got '.xlsx'"):
        export_rows(run, "answers", tmp_path / "rows.xlsx")
