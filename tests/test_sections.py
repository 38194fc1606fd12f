"""What goes down the notebook, from the files to the batches, beside what Python's csv module reads
in the files.
"""

import csv
import json
import re
import time
from collections import Counter

import kernel
import numpy as np
import pandas as pd
import pytest
from runs import VECTORS, copy_of_sample, run_sections

ROWS = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return copy_of_sample(tmp_path_factory.mktemp("sections") / "comments", rows=ROWS)


def read(folder, last="6 Batches", **settings):
    settings = {"output_dir": folder / "results"} | settings
    return run_sections(last, input_dir=folder, vector_files=VECTORS, **settings)


@pytest.fixture(scope="module")
def names(folder):
    return read(folder)


@pytest.fixture(scope="module")
def rows(folder):
    """{file name: list of dicts}."""
    found = {}
    for name in kernel.COMPETITION_FILES:
        with (folder / name).open(newline="", encoding="utf-8") as file:
            found[name] = list(csv.DictReader(file))
    return found


def test_labels_are_those_of_the_file(names, rows):
    """Of the train comments; of the test comments, which come behind them, nothing is known."""
    targets = [float(row["target"]) for row in rows["train.csv"]]
    assert list(names["toxic"]) == [target >= 0.5 for target in targets] and 0.5 in targets
    assert names["show_comments"] is False, "those of others may offend"
    data, train = names["data"], slice(len(targets))
    assert data.toxicity[train, 0] == pytest.approx(targets)
    for place, name in enumerate(kernel.IDENTITIES, 1):
        shares = [float(row[name] or 0) for row in rows["train.csv"]]
        assert list(data.toxicity[train, place]) == [share >= 0.5 for share in shares]
    for place, name in enumerate(kernel.SUBTYPES):
        shares = [float(row[name]) for row in rows["train.csv"]]
        assert data.subtypes[train, place] == pytest.approx(shares)
    for labels in (data.toxicity, data.subtypes):
        assert len(labels) == len(targets) + len(rows["test.csv"])
        assert np.isnan(labels[len(targets) :]).all()


def test_a_test_comment_weighs_as_much_as_a_train_comment_in_the_mean(names, rows):
    raters = np.log([2 + float(row[kernel.RATERS]) for row in rows["train.csv"]])
    expected = [*(raters / raters.mean()), *[1] * len(rows["test.csv"])]
    assert names["data"].weights == pytest.approx(expected, rel=1e-5)


def test_tokens_are_those_of_the_comments_in_their_order(names, rows):
    comments = [row["comment_text"] for row in rows["train.csv"] + rows["test.csv"]]
    assert len(names["offsets"]) == len(comments) + 1
    for place, comment in enumerate(comments):
        start, end = names["offsets"][place : place + 2]
        expected = [kernel.number_of(token, names["numbers"]) for token in kernel.cut(comment)]
        if len(expected) > 220:
            expected = expected[:165] + expected[-55:]
        assert list(names["tokens"][start:end]) == expected
    assert list(names["test_rows"]) == list(range(ROWS, len(comments)))


def test_nothing_is_learned_from_what_is_scored(names):
    held_out = {*names["holdout_rows"]}
    assert held_out.isdisjoint(names["fit_rows"])
    assert len(held_out) + len(names["fit_rows"]) == ROWS
    assert {*names["data"].rows} == {*names["fit_rows"]} and not len(names["data"].unlabelled_rows)
    assert {*names["baseline_rows"]} <= {*names["fit_rows"]}
    texts = names["train"]["comment_text"]
    texts = ["".join(filter(str.isalnum, text.lower())) for text in texts]
    fitted = {texts[row] for row in names["fit_rows"]}
    assert fitted.isdisjoint(texts[row] for row in held_out)


@pytest.mark.parametrize("toxic", [1, 3, 999])
def test_the_rows_of_the_first_model_hold_both_classes(toxic):
    """However few there are of one, and wherever they stand."""
    is_toxic = np.zeros(1000, bool)
    is_toxic[np.random.default_rng(0).permutation(1000)[:toxic]] = True
    chosen = kernel.choose_baseline_rows(is_toxic, most=50)
    assert len({*chosen}) == 50 and {*is_toxic[chosen]} == {False, True}
    assert is_toxic[chosen].mean() == pytest.approx(toxic / 1000, abs=0.03)
    assert sorted(kernel.choose_baseline_rows(is_toxic)) == [*range(1000)]


def test_words_that_have_a_vector_or_occur_often_are_numbered_by_falling_frequency(names):
    """Often: twenty times in the rarer class, where it is as frequent there as in all comments."""
    comments = [*names["train"]["comment_text"], *names["test"]["comment_text"]]
    words = Counter(word for text in comments for word in kernel.cut(text))
    share = names["toxic"].mean()
    often = {word for word, count in words.items() if count * share >= 20}
    lines = VECTORS.read_text(encoding="utf-8").splitlines()[1:]
    known = often.union(line.split(" ")[0] for line in lines)
    assert set(names["numbers"]) == known and len(often) > 30
    counts = np.bincount(names["tokens"], minlength=len(known) + 2)
    assert (np.diff(counts[1:-1]) <= 0).all()
    unknown = [word for word in words if known.isdisjoint(kernel.spellings(word))]
    assert counts[0] == 0 and counts[-1] == sum(words[word] for word in unknown) > 0


def test_terms_are_swapped_unless_the_setting_says_no(folder, names):
    assert len(names["identity_terms"]) == 2
    assert read(folder, swap_terms="no")["identity_terms"] == []


def changed_copy(folder, tmp_path, change):
    """A copy of the comments with another train.csv, as a function of its DataFrame gives it."""
    for path in folder.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    train = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    change(train).to_csv(tmp_path / "train.csv", index=False)
    return tmp_path


def test_a_listed_term_with_a_hyphen_is_a_word_that_is_swapped(folder, tmp_path, monkeypatch):
    """Whatever the case, and also where no file knows it; other words with hyphens are cut."""
    comments = ["An Anglo-Saxon well-known to anglo-saxons", "ANGLO-SAXON!"] * 2

    def change(train):
        train.loc[:3, "comment_text"] = comments
        return train

    lists = "".join(
        next(c["source"] for c in kernel.CELLS if "IDENTITY_TERMS = {" in "".join(c["source"]))
    )
    changed = lists.replace('"muslim islamic"', '"muslim anglo-saxon"').replace(
        "jewish jew", "jewish"
    )
    cells = [c | {"source": changed} if "".join(c["source"]) == lists else c for c in kernel.CELLS]
    monkeypatch.setattr(kernel, "CELLS", cells)
    names = read(changed_copy(folder, tmp_path, change))
    number = names["numbers"]["anglo-saxon"]
    rows = [
        names["tokens"][start:end]
        for start, end in zip(names["offsets"], names["offsets"][1:4], strict=False)
    ]
    assert [np.count_nonzero(row == number) for row in rows[:2]] == [1, 1]
    assert names["identity_terms"][0][0][number] and "whole_words" in names
    assert len(rows[0]) == len("An Anglo-Saxon well - known to anglo - saxons".split())
    swapped = kernel.swap_identity_terms(
        np.full((1, 200), number, np.int32), names["identity_terms"], np.random.default_rng(0)
    )
    assert (swapped != number).mean() > 0.9


def test_where_nobody_is_mentioned_models_are_ordered_by_overall_auc(folder, tmp_path, capsys):
    """Neither raters nor terms say that somebody is: there is no final score."""

    def change(train):
        texts = train["comment_text"].map(lambda text: re.sub(kernel.LISTED, "person", text))
        return train.assign(comment_text=texts, **dict.fromkeys(kernel.IDENTITIES, ""))

    names = read(changed_copy(folder, tmp_path, change), last="4 Metric, and a first model")
    assert names["decisive"] == "overall_auc"
    assert "There is no final score" in capsys.readouterr().out


def test_of_comments_beyond_dispute_an_epoch_draws_two_for_each_other_one(folder, tmp_path):
    def change(train):
        train.loc[train.index % 10 > 0, "target"] = "0"
        return train

    names = read(changed_copy(folder, tmp_path, change))
    targets, drawn = (
        names["train"]["target"].to_numpy(),
        names["data"].draw_rows(np.random.default_rng(0)),
    )
    disputed = np.count_nonzero(targets[names["fit_rows"]])
    assert np.count_nonzero(targets[drawn]) == disputed
    assert np.count_nonzero(targets[drawn] == 0) == 2 * disputed
    # and those are what a batch is sized for, with the test comments that later networks learn
    sized_for = []
    names |= {"batch_size_for": lambda rows: sized_for.append(rows) or 8}
    names |= {"settings": kernel.Settings()}
    kernel.run_cell(kernel.number_of_cell("data = TrainingData("), names)
    assert len(drawn) <= sized_for[0] <= 1.5 * len(drawn) < len(names["fit_rows"])


def test_a_limit_that_cannot_be_kept_leaves_the_submission_of_tf_idf(folder, tmp_path):
    names = read(folder, last="7 Model, loss, first steps", output_dir=tmp_path)
    with (tmp_path / "submission.csv").open(newline="") as file:
        before = list(csv.DictReader(file))
    names["end"] = names["time_limit"] = time.monotonic()
    warned = pytest.warns(UserWarning, match="No network counts.*the scores of TF-IDF")
    with warned, pytest.raises(SystemExit):
        run_sections("8 Training and submission", names)
    with (tmp_path / "submission.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == before and len(before) == ROWS
    assert not (tmp_path / "report.json").exists()


def test_odd_comments_cost_no_result(folder, tmp_path):
    """An identity on every row, no subtypes and raters, comments without a word, every test row in
    train.
    """

    def change(train):
        train = train.assign(male="1", **dict.fromkeys([*kernel.SUBTYPES, kernel.RATERS], ""))
        odd = ["", "😀", "\u200b", "שלום", "!!!!", "word " * 2000, "\n"]
        train.loc[::7, "comment_text"] = odd * 8 + [""] * 2
        return train

    changed_copy(folder, tmp_path, change)
    test = pd.read_csv(tmp_path / "train.csv", dtype=str, keep_default_na=False)
    test = test[["id", "comment_text"]].iloc[:50]
    test.to_csv(tmp_path / "test.csv", index=False)
    test[["id"]].assign(prediction=0).to_csv(tmp_path / "sample_submission.csv", index=False)
    names = read(tmp_path, last="12 Report", models=1, epochs=1, lstm_units=8)
    assert len(names["submissions"]) == 50 and names["submissions"]["LSTM"].between(0, 1).all()
    assert list(names["score"]("a comment")) == ["toxicity"]  # nobody knows of the others
    rows = json.loads((tmp_path / "results" / "report.json").read_text())["rows"]
    assert rows["fitted"] + rows["held_out"] == ROWS and rows["scored"] == 50
