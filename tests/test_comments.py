"""Comments: what is read from the competition's files; test_broken_input.py tells which files are
refused.
"""

import csv
import io

import kernel
import numpy as np
import pandas as pd
import pytest
from runs import SAMPLE

SCORED = """male female homosexual_gay_or_lesbian christian jewish muslim black white
    psychiatric_or_mental_illness""".split()  # the nine identities of the competition's metric
UNUSED = """created_date publication_id parent_id article_id rating funny wow sad likes disagree
    identity_annotator_count""".split()
COLUMNS = [*pd.read_csv(SAMPLE / "train.csv", nrows=0)]  # those of the competition


def write(table, path):
    """Write a table as a csv with every field in quotes."""
    table.to_csv(path, index=False, quoting=csv.QUOTE_ALL)
    return path


def read_train(folder, table):
    """Write a train.csv, what the table lacks empty, and read it as the notebook does."""
    path = write(table.reindex(columns=COLUMNS), folder / "train.csv")
    return kernel.read_train(path)


TRAIN = """
id,target,comment_text,male,black,insult,asian,rating,toxicity_annotator_count
a,0.5,one,,,,,,4
b,0,two,0.5,0,,,,
c,1.0,three,,,0.25,1,,
d,0.1666666667,four,,,,,approved,
"""


def test_only_what_is_used_comes_back(tmp_path):
    train = read_train(tmp_path, pd.read_csv(io.StringIO(TRAIN), dtype=str))
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


def test_ids_are_kept_as_written_and_test_rows_come_as_the_sample_submission_has_them(tmp_path):
    ids = "007 7 1e5 59848.0 NA 0x1F +1 True 00a1".split()
    texts = pd.DataFrame({"id": ids, "comment_text": ["", *"abcdefgh"]})
    assert [*read_train(tmp_path, texts.assign(target=0))["id"]] == ids
    path = write(texts, tmp_path / "test.csv")
    wanted = texts.sort_values("id", ignore_index=True)
    read = kernel.read_test(path, write(wanted[["id"]], tmp_path / "wanted.csv"))
    pd.testing.assert_frame_equal(read, wanted)


def test_half_of_the_raters_mention_an_identity_and_its_terms_where_no_rater_was_asked_about_it():
    train = pd.DataFrame({"comment_text": ["Men and muslims", "a Muslim", "manly", "nothing"]})
    train[SCORED] = 0.0
    train["bisexual"] = np.nan  # no terms are listed by this name
    train["male"] = np.nan
    train["muslim"] = [np.nan, 0.49, 0.5, np.nan]
    train["asian"] = [0.5, np.nan, 0.0, 1.0]
    mentioned, by_terms = kernel.find_mentions(train)
    assert by_terms == ["male"]
    found = {name: np.flatnonzero(of).tolist() for name, of in mentioned.items() if of.any()}
    assert found == {"male": [0], "muslim": [2], "asian": [0, 3]}
    assert {*mentioned} == {*train} - {"comment_text"}


def test_a_term_is_found_as_a_whole_word_in_any_script():
    """Also where it ends with the sign of a vowel, or with an accent that is a character."""
    for term in "हिन्दू", "สตรี", "Jose\u0301", "gay":
        found = kernel.one_of([term])
        assert found.search(f"({term.lower()}), x") and not found.search(f"x{term} {term}x")


def test_the_nine_identities_are_those_of_the_competition():
    assert kernel.IDENTITIES == SCORED
