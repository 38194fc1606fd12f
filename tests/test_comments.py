"""Comments: what is read from the competition's files, and which files are refused."""

import csv
import re

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


def write_csv(path, rows, columns):
    """Write dicts as a csv with every field in quotes; what a row lacks is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(
            file, columns, restval="", lineterminator="\n", quoting=csv.QUOTE_ALL
        )
        writer.writeheader()
        writer.writerows(rows)
    return path


def train_rows():
    """Four rows of a valid train.csv."""
    rows = [
        {"id": "a", "target": "0.5", "comment_text": "one"},
        {"id": "b", "target": "0", "comment_text": "two"},
        {"id": "c", "target": "1.0", "comment_text": "three"},
        {"id": "d", "target": "0.1666666667", "comment_text": "four"},
    ]
    rows[0] |= {"toxicity_annotator_count": "4", "rating": "approved"}
    rows[1] |= {"toxicity_annotator_count": "10", "male": "0.5", "black": "0"}
    rows[2] |= {"insult": "0.25", "sexual_explicit": "1", "asian": "1"}
    rows[3] |= {"created_date": "2017-01-01 00:00:00+00"}
    return rows


def without(names, rows):
    """The rows, dicts, without the columns of these names."""
    return [{name: row[name] for name in row if name not in names} for row in rows]


def write_train(folder, rows, columns=COLUMNS):
    return write_csv(folder / "train.csv", rows, columns)


def read_train(path):
    """As the notebook reads it."""
    numbers = [*kernel.SUBTYPES, *kernel.IDENTITIES, kernel.RATERS]
    return kernel.read_labelled(path, "target", numbers, ["comment_text"])


def write_test(folder, comments, wanted):
    """Write test.csv, from pairs of id and comment, and sample_submission.csv: their paths."""
    comments = [{"id": name, "comment_text": text} for name, text in comments]
    test = write_csv(folder / "test.csv", comments, ["id", "comment_text"])
    wanted = [{"id": name, "prediction": "0.0"} for name in wanted]
    return test, write_csv(folder / "sample_submission.csv", wanted, ["id", "prediction"])


def test_only_what_is_used_comes_back(tmp_path):
    assert len(COLUMNS) == 45
    train = read_train(write_train(tmp_path, train_rows()))
    assert set(train) == set(COLUMNS) - set(UNUSED)
    numbers = train.drop(columns=["id", "comment_text"])
    assert {dtype.kind for dtype in numbers.dtypes} == {"f"}
    assert list(train["id"]) == ["a", "b", "c", "d"]
    assert list(train["comment_text"]) == ["one", "two", "three", "four"]
    assert list(train["target"]) == pytest.approx([0.5, 0, 1, 1 / 6])
    assert train.loc[2, "sexual_explicit"] == 1 and train.loc[2, "insult"] == 0.25


def test_empty_shares_and_counts_are_not_a_number(tmp_path):
    train = read_train(write_train(tmp_path, train_rows()))
    expected = {
        "male": [np.nan, 0.5, np.nan, np.nan],
        "toxicity_annotator_count": [4, 10, np.nan, np.nan],
    }
    for name, values in expected.items():
        assert list(train[name]) == pytest.approx(values, nan_ok=True)


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
    train = read_train(write_train(folder, rows))
    assert list(train["comment_text"]) == texts
    test = kernel.read_test(*write_test(folder, comments.items(), comments))
    assert list(test["comment_text"]) == texts


def test_ids_are_kept_as_written(tmp_path):
    ids = "007 7 1e5 59848.0 NA 0x1F +1 True 00a1".split()
    rows = [{"id": name, "target": "0", "comment_text": "text"} for name in ids]
    assert list(read_train(write_train(tmp_path, rows))["id"]) == ids
    test = kernel.read_test(*write_test(tmp_path, [(name, "text") for name in ids], ids))
    assert list(test["id"]) == ids


@pytest.mark.parametrize(
    "missing", ["id", "comment_text", "target", "muslim", "threat", "toxicity_annotator_count"]
)
def test_missing_column_is_named(tmp_path, missing):
    columns = [name for name in COLUMNS if name != missing]
    path = write_train(tmp_path, without([missing], train_rows()), columns)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}.* no column {missing}\b"):
        read_train(path)


@pytest.mark.parametrize("missing", [UNUSED, UNUSED + UNSCORED, [*UNUSED, "hindu"]])
def test_columns_that_are_not_used_or_not_scored_may_be_missing(tmp_path, missing):
    columns = [name for name in reversed(COLUMNS) if name not in missing]
    train = read_train(write_train(tmp_path, without(missing, train_rows()), columns))
    assert list(train["id"]) == ["a", "b", "c", "d"]
    assert set(train) == set(columns)


def write_expanded(folder, **changes_of_second):
    """Write labels of test comments, as published after the competition."""
    rows = [
        {"id": "x", "toxicity": "0.5", "male": "1"},
        {"id": "y", "toxicity": "0"} | changes_of_second,
    ]
    return write_csv(folder / "test_public_expanded.csv", rows, ["id", "toxicity", *SCORED])


def test_labels_of_test_comments_are_read(tmp_path):
    expanded = kernel.read_labelled(write_expanded(tmp_path), "toxicity", kernel.IDENTITIES)
    assert list(expanded["id"]) == ["x", "y"]
    assert list(expanded["toxicity"]) == [0.5, 0]
    assert list(expanded["male"]) == pytest.approx([1, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("column", "value", "shown"),
    [("toxicity", "", "nan"), ("toxicity", "2", "2.0"), ("id", "x", "x"), ("male", "50", "50.0")],
)
def test_wrong_labels_of_test_comments_are_named(tmp_path, column, value, shown):
    path = write_expanded(tmp_path, **{column: value})
    message = rf"^{re.escape(str(path))}, row 2 \(id .\), column {column}: '{shown}'"
    with pytest.raises(ValueError, match=message):
        kernel.read_labelled(path, "toxicity", kernel.IDENTITIES)


def test_test_rows_come_in_the_order_of_the_sample_submission(tmp_path):
    comments = [("3", "three"), ("1", ""), ("10", "ten"), ("2", "two")]
    test = kernel.read_test(*write_test(tmp_path, comments, ["10", "2", "1", "3"]))
    assert list(test.columns) == ["id", "comment_text"]
    assert list(test.index) == [0, 1, 2, 3]
    assert list(test["id"]) == ["10", "2", "1", "3"]
    assert list(test["comment_text"]) == ["ten", "two", "", "three"]


def test_half_of_the_raters_make_a_comment_toxic_and_an_identity_mentioned(tmp_path):
    rows = [
        {"id": "1", "target": "0.5", "male": "0.5", "black": "0.49", "white": ""},
        {"id": "2", "target": "0.4999", "male": "", "black": "1", "white": "0"},
        {"id": "3", "target": "0", **dict.fromkeys(SCORED, "1")},
    ]
    write_train(tmp_path, rows)
    write_test(tmp_path, [("4", "")], ["4"])
    variables = {
        **vars(kernel),
        "input_dir": tmp_path,
        "show_comments": False,
        "settings": kernel.Settings(),
    }
    kernel.run_cell(kernel.number_of_cell("train = read_labelled("), variables)
    assert variables["toxic"].tolist() == [True, False, False]
    mentioned = variables["mentioned"]
    assert set(mentioned) == {*SCORED, *UNSCORED}
    assert mentioned["male"].tolist() == [True, False, True]
    assert mentioned["black"].tolist() == [False, True, True]
    assert mentioned["white"].tolist() == [False, False, True]


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
