"""Submission and report: what is written is whole and valid, or nothing is written."""

import csv

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

IDS = pd.Series(["007", "7", "1e5", "00a1"])
GOOD = np.array([0.25, 0.0, 1.0, 0.1])


def test_submission_holds_ids_as_text_in_order_with_their_predictions(tmp_path):
    path = tmp_path / "submission.csv"
    kernel.write_submission(path, IDS, GOOD)
    assert path.read_bytes() == b"id,prediction\n007,0.25\n7,0.0\n1e5,1.0\n00a1,0.1\n"
    assert list(tmp_path.iterdir()) == [path]


@settings(max_examples=50)
@given(
    predictions=st.dictionaries(
        st.text("0123456789abcXYZ-_.,; \"'é#", min_size=1), st.floats(0, 1), min_size=1, max_size=8
    )
)
def test_every_submission_comes_back_as_it_was(tmp_path_factory, predictions):
    path = tmp_path_factory.mktemp("submission") / "submission.csv"
    kernel.write_submission(path, pd.Series([*predictions]), np.array([*predictions.values()]))
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["id", "prediction"]
    assert [(name, float(text)) for name, text in rows] == [*predictions.items()]


@pytest.mark.parametrize("third", [np.nan, -0.1, 1.1, np.inf])
def test_wrong_prediction_is_named_and_an_older_submission_stays(tmp_path, third):
    path = tmp_path / "submission.csv"
    path.write_text("an older submission\n")
    with pytest.raises(ValueError) as refusal:
        kernel.write_submission(path, IDS, np.array([0.5, 0.5, third, 0.5]))
    assert f"{path}, row 3 (id 1e5), column prediction: '{third}'" in str(refusal.value)
    assert path.read_text() == "an older submission\n"


@pytest.mark.parametrize("predictions", [GOOD[:3], np.append(GOOD, 0.5)], ids=["few", "many"])
def test_as_many_predictions_as_ids_or_nothing_is_written(tmp_path, predictions):
    with pytest.raises(ValueError):
        kernel.write_submission(tmp_path / "submission.csv", IDS, predictions)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "content", ["new – é\n", lambda file: file.write("new – é\n".encode())], ids=["text", "function"]
)
def test_a_file_keeps_the_old_text_until_the_new_one_is_whole(tmp_path, content):
    path = tmp_path / "report.json"
    path.write_text("old")

    def fail(file):
        file.write(b"half")
        file.flush()
        assert path.read_text() == "old"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        kernel.write_atomically(path, fail)
    assert path.read_text() == "old"
    kernel.write_atomically(path, content)
    assert path.read_bytes() == "new – é\n".encode()  # in UTF-8, with the line ends of Unix
    assert list(tmp_path.iterdir()) == [path]


def test_intervals_are_the_quantiles_of_the_draws():
    drawn = pd.DataFrame({("male", "auc"): np.arange(201) / 200, ("male", "gap"): np.nan, ("all", "auc"): 0.5})
    intervals = kernel.intervals_of(drawn)
    assert intervals["male"]["auc"] == pytest.approx([0.025, 0.975]) and intervals["all"] == {"auc": [0.5, 0.5]}
    assert np.isnan(intervals["male"]["gap"]).all()


def test_a_table_of_the_model_card_has_four_decimals_and_counts_as_they_are():
    table = pd.DataFrame({"comments": [12_345, 0], "auc": [0.98765432, np.nan], "gap": ["+0.1*", "-0.2"]}, ["a", "b"])
    assert kernel.markdown_table(table).splitlines() == [
        "|  | comments | auc | gap |",
        "| --- | --- | --- | --- |",
        "| a | 12345 | 0.9877 | +0.1* |",
        "| b | 0 | nan | -0.2 |",
    ]
