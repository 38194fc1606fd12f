"""Comments: what is read from the competition's files, and which files are refused."""

import csv

import kernel
import numpy as np
import pandas as pd
import pytest

SUBTYPES = "severe_toxicity obscene identity_attack insult threat".split()
SCORED = """male female homosexual_gay_or_lesbian christian jewish muslim black white
    psychiatric_or_mental_illness""".split()  # the nine identities of the competition's metric
UNSCORED = """asian atheist bisexual buddhist heterosexual hindu
    intellectual_or_learning_disability latino other_disability other_gender other_race_or_ethnicity
    other_religion other_sexual_orientation physical_disability transgender""".split()
UNUSED = """created_date publication_id parent_id article_id rating funny wow sad likes disagree
    identity_annotator_count""".split()
COLUMNS = [  # those of the competition's train.csv
    *("id", "target", "comment_text", *SUBTYPES, *sorted(SCORED + UNSCORED), *UNUSED[:10]),
    *("sexual_explicit", "identity_annotator_count", "toxicity_annotator_count"),
]
NUMBERS = [*kernel.SUBTYPES, *kernel.IDENTITIES, kernel.RATERS]


def write_csv(path, rows, columns):
    """Write dicts as a csv with every field in quotes, of these columns; what a row lacks is
    empty.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, columns, restval="", extrasaction="ignore", quoting=csv.QUOTE_ALL
        )
        writer.writeheader()
        writer.writerows(rows)
    return path


ROWS = [  # of a valid train.csv
    {"id": "a", "target": "0.5", "comment_text": "one", "toxicity_annotator_count": "4"},
    {"id": "b", "target": "0", "comment_text": "two", "male": "0.5", "black": "0"},
    {"id": "c", "target": "1.0", "comment_text": "three", "insult": "0.25", "asian": "1"},
    {"id": "d", "target": "0.1666666667", "comment_text": "four", "rating": "approved"},
]


def read_train(folder, rows=ROWS, columns=COLUMNS):
    """Write a train.csv, and read it as the notebook does."""
    path = write_csv(folder / "train.csv", rows, columns)
    return kernel.read_labelled(path, "target", NUMBERS, ["comment_text"])


def write_test(folder, texts, wanted):
    """Write test.csv, {id: comment}, and sample_submission.csv: their paths."""
    texts = [{"id": name, "comment_text": text} for name, text in texts.items()]
    test = write_csv(folder / "test.csv", texts, ["id", "comment_text"])
    wanted = [{"id": name, "prediction": "0.0"} for name in wanted]
    return test, write_csv(folder / "sample_submission.csv", wanted, ["id", "prediction"])


def test_only_what_is_used_comes_back(tmp_path):
    assert len(COLUMNS) == 45
    train = read_train(tmp_path)
    assert {*train} == {*COLUMNS} - {*UNUSED}
    numbers = train.drop(columns=["id", "comment_text"])
    assert {dtype.kind for dtype in numbers.dtypes} == {"f"}
    assert [*train["id"]] == [*"abcd"]
    assert [*train["comment_text"]] == ["one", "two", "three", "four"]
    assert [*train["target"]] == pytest.approx([0.5, 0, 1, 1 / 6])
    assert train.loc[2, "insult"] == 0.25
    # what is empty is not a number
    assert train["male"].isna().tolist() == [True, False, True, True]
    assert train["toxicity_annotator_count"].dropna().tolist() == [4]


def test_ids_are_kept_as_written(tmp_path):
    ids = "007 7 1e5 59848.0 NA 0x1F +1 True 00a1".split()
    rows = [{"id": name, "target": "0", "comment_text": "text"} for name in ids]
    assert [*read_train(tmp_path, rows)["id"]] == ids
    test = kernel.read_test(*write_test(tmp_path, dict.fromkeys(ids, "text"), ids))
    assert [*test["id"]] == ids


def test_test_rows_come_in_the_order_of_the_sample_submission(tmp_path):
    comments = {"3": "three", "1": "", "10": "ten", "2": "two"}
    test = kernel.read_test(*write_test(tmp_path, comments, ["10", "2", "1", "3"]))
    assert [*test] == ["id", "comment_text"]
    assert [*test["id"]] == ["10", "2", "1", "3"]
    assert [*test["comment_text"]] == ["ten", "two", "", "three"]


def test_half_of_the_raters_make_a_comment_toxic_and_an_identity_mentioned(tmp_path):
    rows = [
        {"id": "1", "target": "0.5", "male": "0.5", "black": "0.49", "white": ""},
        {"id": "2", "target": "0.4999", "male": "", "black": "1", "white": "0"},
        {"id": "3", "target": "0", **dict.fromkeys(SCORED, "1")},
    ]
    write_csv(tmp_path / "train.csv", rows, COLUMNS)
    write_test(tmp_path, {"4": ""}, ["4"])
    names = vars(kernel) | {"input_dir": tmp_path, "show_comments": False}
    kernel.run_cell(kernel.number_of_cell("train = read_labelled("), names)
    mentioned = names["mentioned"]
    assert {*mentioned} == {*SCORED, *UNSCORED}
    assert np.flatnonzero(names["toxic"]).tolist() == [0]
    for name, rows in {"male": [0, 2], "black": [1, 2], "white": [2]}.items():
        assert np.flatnonzero(mentioned[name]).tolist() == rows


def test_an_identity_is_found_by_its_terms_only_where_no_rater_was_asked_about_it():
    train = pd.DataFrame({"comment_text": ["Men and muslims", "a Muslim", "manly", "nothing"]})
    train[SCORED] = 0.0
    train["bisexual"] = np.nan  # no terms are listed by this name
    train["male"] = np.nan
    train["muslim"] = [np.nan, 0.4, 0.5, np.nan]
    mentioned, by_terms = kernel.find_mentions(train)
    assert by_terms == ["male"]
    assert mentioned["male"].tolist() == [True, False, False, False]
    assert mentioned["muslim"].tolist() == [False, False, True, False]
    assert not mentioned["bisexual"].any()


def test_the_nine_identities_are_those_of_the_competition():
    assert kernel.IDENTITIES == SCORED
