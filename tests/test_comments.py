"""Comments: what is read from the competition's files, and which files are refused."""

import csv

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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


TEXTS = """NA null nan -inf True 7 " "" , #""".split()
TEXTS += ["", " ", "a\nb", "a\r\n\nb", "\ufeffa\n\ufeffb"]
ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=50, deadline=None)
@example(texts=TEXTS)
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=5))
def test_every_text_stays_as_it_is(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("texts")
    comments = {str(number): text for number, text in enumerate(texts)}
    rows = [{"id": name, "target": "0", "comment_text": text} for name, text in comments.items()]
    assert [*read_train(folder, rows)["comment_text"]] == texts
    test = kernel.read_test(*write_test(folder, comments, comments))
    assert [*test["comment_text"]] == texts


def test_ids_are_kept_as_written(tmp_path):
    ids = "007 7 1e5 59848.0 NA 0x1F +1 True 00a1".split()
    rows = [{"id": name, "target": "0", "comment_text": "text"} for name in ids]
    assert [*read_train(tmp_path, rows)["id"]] == ids
    test = kernel.read_test(*write_test(tmp_path, dict.fromkeys(ids, "text"), ids))
    assert [*test["id"]] == ids


@pytest.mark.parametrize(
    "missing", ["id", "comment_text", "target", "muslim", "threat", "toxicity_annotator_count"]
)
def test_missing_column_is_named(tmp_path, missing):
    columns = [name for name in COLUMNS if name != missing]
    with pytest.raises(ValueError, match=rf"^{tmp_path}/train.csv has no column {missing}\b"):
        read_train(tmp_path, columns=columns)


@pytest.mark.parametrize("missing", [UNUSED, UNUSED + UNSCORED, [*UNUSED, "hindu"]])
def test_columns_that_are_not_used_or_not_scored_may_be_missing(tmp_path, missing):
    columns = [name for name in reversed(COLUMNS) if name not in missing]
    train = read_train(tmp_path, columns=columns)
    assert [*train["id"]] == [*"abcd"]
    assert {*train} == {*columns}


def read_expanded(folder, **changes_of_second):
    """Write labels of test comments, as published after the competition, and read them."""
    rows = [{"id": "x", "toxicity": "0.5", "male": "1"}]
    rows.append({"id": "y", "toxicity": "0"} | changes_of_second)
    path = write_csv(folder / "test_public_expanded.csv", rows, ["id", "toxicity", *SCORED])
    return kernel.read_labelled(path, "toxicity", kernel.IDENTITIES)


def test_labels_of_test_comments_are_read(tmp_path):
    expanded = read_expanded(tmp_path)
    assert [*expanded["id"]] == ["x", "y"]
    assert [*expanded["toxicity"]] == [0.5, 0]
    assert expanded["male"].equals(pd.Series([1, np.nan]))


@pytest.mark.parametrize(
    "column, value, shown",
    [
        ("toxicity", "", "nan"),
        ("toxicity", "2", "2.0"),
        ("id", "x", "x"),
        ("male", "50", "50.0"),
    ],
)
def test_wrong_labels_of_test_comments_are_named(tmp_path, column, value, shown):
    said = rf"^{tmp_path}/test_public_expanded.csv, row 2 \(id .\), column {column}: '{shown}'"
    with pytest.raises(ValueError, match=said):
        read_expanded(tmp_path, **{column: value})


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


def test_each_scored_identity_has_terms():
    assert kernel.IDENTITIES == SCORED
    assert all("".join(kernel.IDENTITY_TERMS[name]) for name in SCORED)
