"""Submission: what is written is whole and valid, or nothing is written."""

import csv
import json
import math

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

IDS = pd.Series(["007", "7", "1e5", "00a1"])
GOOD = np.array([0.25, 0.0, 1.0, 0.1], np.float32)


def read_rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_submission_holds_ids_as_text_in_order_with_their_predictions(tmp_path):
    path = tmp_path / "submission.csv"
    returned = kernel.write_submission(path, IDS, GOOD)
    assert path.read_bytes() == b"id,prediction\n007,0.25\n7,0.0\n1e5,1.0\n00a1,0.1\n"
    assert list(returned["id"]) == list(IDS)
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=50, deadline=None)
@given(
    predictions=st.dictionaries(
        st.text("0123456789abcXYZ-_.,; \"'é#", min_size=1), st.floats(0, 1, width=32), min_size=1, max_size=8
    )
)
def test_every_submission_comes_back_as_it_was(tmp_path_factory, predictions):
    path = tmp_path_factory.mktemp("submission") / "submission.csv"
    kernel.write_submission(path, pd.Series([*predictions]), np.array([*predictions.values()], np.float32))
    header, *rows = read_rows(path)
    assert header == ["id", "prediction"]
    assert {name: np.float32(text) for name, text in rows} == predictions
    assert [name for name, _ in rows] == [*predictions]


@pytest.mark.parametrize(("third", "shown"), [(np.nan, ""), (-0.1, "-0.1"), (1.1, "1.1"), (np.inf, "inf")])
def test_wrong_prediction_is_named(tmp_path, third, shown):
    path = tmp_path / "submission.csv"
    with pytest.raises(ValueError) as refusal:
        kernel.write_submission(path, IDS, np.array([0.5, 0.5, third, 0.5]))
    assert str(path) in str(refusal.value)
    assert f"column prediction, row 3 (id 1e5): {shown}" in str(refusal.value)
    assert not path.exists()


@pytest.mark.parametrize(
    "predictions", [GOOD * np.nan, GOOD - 1, GOOD[:3], np.append(GOOD, 0.5)], ids=["NaN", "negative", "few", "many"]
)
def test_an_older_submission_survives_wrong_predictions(tmp_path, predictions):
    path = tmp_path / "submission.csv"
    path.write_text("an older submission\n")
    with pytest.raises(ValueError):
        kernel.write_submission(path, IDS, predictions)
    assert path.read_text() == "an older submission\n"


def test_whole_file_shows_the_old_text_until_the_new_one_is_written(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    with kernel.whole_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_whole_file_keeps_the_old_text_where_writing_fails(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"), kernel.whole_file(path) as temporary:
        temporary.write_text("half")
        raise OSError("disk full")
    assert path.read_text() == "old"


def test_texts_are_written_in_utf_8_with_the_line_ends_of_unix(tmp_path):
    kernel.write_whole(tmp_path / "report.json", "new – é\n")
    assert (tmp_path / "report.json").read_bytes() == "new – é\n".encode()


def test_as_json_keeps_numbers_and_turns_nan_into_none():
    table = pd.DataFrame({"auc": [0.830609185889702, math.nan], "comments": [3, 0]}, index=["male", "white"])
    plain = kernel.as_json(table)
    assert plain == {
        "male": {"auc": pytest.approx(0.830609185889702, abs=1e-15), "comments": 3},
        "white": {"auc": None, "comments": 0},
    }
    json.dumps(plain, allow_nan=False)
