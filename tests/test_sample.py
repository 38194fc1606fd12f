"""The sample competition: what the other tests and a first run rely on."""

import subprocess
import sys

import kernel
import pandas as pd
import pytest

FOLDER = kernel.NOTEBOOK.parent / "tests"
SAMPLE = FOLDER / "sample"
COLUMNS = """id target comment_text severe_toxicity obscene identity_attack insult threat asian
    atheist bisexual black buddhist christian female heterosexual hindu homosexual_gay_or_lesbian
    intellectual_or_learning_disability jewish latino male muslim other_disability other_gender
    other_race_or_ethnicity other_religion other_sexual_orientation physical_disability
    psychiatric_or_mental_illness transgender white created_date publication_id parent_id article_id
    rating funny wow sad likes disagree sexual_explicit identity_annotator_count
    toxicity_annotator_count""".split()


@pytest.fixture(scope="module")
def train():
    return pd.read_csv(SAMPLE / "train.csv", keep_default_na=False, na_values={"target": [""]})


def test_regenerating_the_sample_gives_the_same_bytes(tmp_path):
    subprocess.run([sys.executable, FOLDER / "make_sample.py", tmp_path], check=True)
    made, stored = (
        {path.name: path.read_bytes() for path in of.iterdir()} for of in (tmp_path, SAMPLE)
    )
    assert made == stored


def test_each_test_comment_has_labels_in_one_of_two_files():
    ids = pd.read_csv(SAMPLE / "test.csv")["id"]
    halves = [pd.read_csv(SAMPLE / f"test_{name}_expanded.csv") for name in ("public", "private")]
    assert sorted(pd.concat(halves)["id"]) == sorted(ids)
    for half in halves:
        assert {"toxicity", *kernel.IDENTITIES, *kernel.OTHER_IDENTITIES} <= {*half}


def test_columns_are_the_competitions_in_order(train):
    assert list(train.columns) == COLUMNS


def test_identity_columns_are_empty_in_about_half_of_the_rows(train):
    assert 0.4 < (train["male"] == "").mean() < 0.6


def test_every_identity_has_toxic_and_harmless_rows(train):
    for identity in kernel.IDENTITIES:
        mentioned = pd.to_numeric(train[identity]).fillna(0) >= 0.5
        assert set(train["target"][mentioned] >= 0.5) == {True, False}, identity


def test_the_same_text_stands_under_two_ids_with_different_labels(train):
    labels = train.assign(toxic=train["target"] >= 0.5).groupby("comment_text")["toxic"]
    assert (labels.nunique() == 2).sum() >= 10


@pytest.mark.parametrize("name", ["train.csv", "test.csv"])
def test_odd_comments_occur(name):
    comments = pd.read_csv(SAMPLE / name, keep_default_na=False)["comment_text"]
    words = comments.str.split().str.len()
    assert {0, 1} <= {*words} and words.max() > 400
    for odd in ("[😀-🙏]", "n[’']t ", "[α-ωА-я一-龥]"):
        assert comments.str.contains(odd).any(), odd
