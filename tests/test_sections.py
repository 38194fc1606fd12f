"""What goes down the notebook, from the files to the batches, beside what Python's csv module reads in the files."""

import csv
import json
import re
import time
from collections import Counter
from dataclasses import replace

import kernel
import numpy as np
import pandas as pd
import pytest
from runs import VECTORS, copy_of_sample, run_sections

ROWS = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return copy_of_sample(tmp_path_factory.mktemp("sections") / "comments", rows=ROWS)


def read(folder, **settings):
    return run_sections("6 Batches", input_dir=folder, vector_files=VECTORS, output_dir=folder / "results", **settings)


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
    known = {name: labels[: len(targets)] for name, labels in names["labels"].items()}
    assert known["toxicity"][:, 0] == pytest.approx(targets)
    for place, name in enumerate(kernel.IDENTITIES, 1):
        shares = [float(row[name] or 0) for row in rows["train.csv"]]
        assert list(known["toxicity"][:, place]) == [share >= 0.5 for share in shares]
    for place, name in enumerate(kernel.SUBTYPES):
        shares = [float(row[name]) for row in rows["train.csv"]]
        assert known["subtypes"][:, place] == pytest.approx(shares)
    raters = np.array([float(row[kernel.RATERS]) for row in rows["train.csv"]])
    weights = np.append(np.log(2 + raters) / np.log(2 + raters).mean(), np.ones(len(rows["test.csv"])))
    weights[names["holdout_rows"]] = 1  # it is learned as the test comments are
    assert names["weights"] == pytest.approx(weights, rel=1e-5)
    for labels in names["labels"].values():
        assert len(labels) == len(targets) + len(rows["test.csv"]) and np.isnan(labels[len(targets) :]).all()


def test_tokens_are_those_of_the_comments_in_their_order(names, rows):
    comments = [row["comment_text"] for row in rows["train.csv"] + rows["test.csv"]]
    assert len(names["offsets"]) == len(comments) + 1
    for place, comment in enumerate(comments):
        start, end = names["offsets"][place : place + 2]
        expected = [kernel.number_of(token, names["numbers"]) for token in kernel.cut(comment)]
        assert list(names["tokens"][start:end]) == (
            expected if len(expected) <= 220 else expected[:165] + expected[-55:]
        )
    assert list(names["test_rows"]) == list(range(ROWS, len(comments)))


def test_nothing_is_learned_from_what_is_scored(names):
    held_out = {*names["holdout_rows"]}
    assert held_out.isdisjoint(names["fit_rows"]) and len(held_out) + len(names["fit_rows"]) == ROWS
    assert {*names["batches"].order} <= {*names["fit_rows"]}
    assert {*names["baseline_rows"]} <= {*names["fit_rows"]}
    texts = ["".join(filter(str.isalnum, text.lower())) for text in names["train"]["comment_text"]]
    assert {texts[row] for row in held_out}.isdisjoint(texts[row] for row in names["fit_rows"])


def test_words_that_have_a_vector_or_occur_often_are_numbered_by_falling_frequency(names):
    """Often: twenty times in the rarer class, where it is as frequent there as in all comments."""
    words = Counter(
        word for text in [*names["train"]["comment_text"], *names["test"]["comment_text"]] for word in kernel.cut(text)
    )
    often = {word for word, count in words.items() if count * names["toxic"].mean() >= 20}
    lines = VECTORS.read_text(encoding="utf-8").splitlines()[1:]
    known = often.union(line.split(" ")[0] for line in lines)
    assert set(names["numbers"]) == known and len(often) > 30
    counts = np.bincount(names["tokens"], minlength=len(known) + 2)
    assert (np.diff(counts[1:-1]) <= 0).all()
    unknown = sum(count for word, count in words.items() if known.isdisjoint(kernel.spellings(word)))
    assert counts[0] == 0 and counts[-1] == unknown > 0


def test_terms_are_swapped_unless_the_setting_says_no(folder, names):
    assert len(names["identity_terms"]) == 2
    assert read(folder, swap_terms="no")["identity_terms"] == []


def test_of_comments_beyond_dispute_an_epoch_draws_two_for_each_other_one(folder, tmp_path):
    train = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    train.loc[train.index % 10 > 0, "target"] = "0"
    for path in folder.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    train.to_csv(tmp_path / "train.csv", index=False)
    names = read(tmp_path)
    targets = names["train"]["target"].to_numpy()
    drawn, disputed = targets[names["batches"].order], np.count_nonzero(targets[names["fit_rows"]])
    assert np.count_nonzero(drawn) == disputed and np.count_nonzero(drawn == 0) == 2 * disputed
    # and those are what the size of a batch is chosen for, with those to score that later models learn
    sized_for = []
    names |= {
        "settings": replace(names["settings"], batch_size=None),
        "batch_size_for": lambda n: sized_for.append(n) or 8,
    }
    kernel.run_cell(kernel.number_of_cell("make_batches = partial("), names)
    assert len(drawn) <= sized_for[0] <= 1.5 * len(drawn) < len(names["fit_rows"])


def test_a_limit_that_cannot_be_kept_is_said_and_leaves_a_submission(folder):
    results = folder / "late"
    names = run_sections("8 The same in NumPy", input_dir=folder, vector_files=VECTORS, output_dir=results)
    names["end"] = time.monotonic()
    with pytest.warns(UserWarning) as told, pytest.raises(SystemExit):
        run_sections("9 Training and submission", names)
    said = "\n".join(str(warning.message) for warning in told)
    assert re.search(r"KERNEL_TIME_LIMIT is [\d,]+ s too short", said) and "No model was trained" in said
    with (results / "submission.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == ROWS


def test_odd_comments_cost_no_result(folder, tmp_path):
    """An identity on every row, no subtypes and raters, comments without a word, every test row in train."""
    train = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    train = train.assign(male="1", **dict.fromkeys([*kernel.SUBTYPES, kernel.RATERS], ""))
    train.loc[::7, "comment_text"] = ["", "😀", "\u200b", "שלום", "!!!!", "word " * 2000, "\n"] * 8 + [""] * 2
    test = train[["id", "comment_text"]].iloc[:50]
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_csv(tmp_path / "test.csv", index=False)
    test[["id"]].assign(prediction=0).to_csv(tmp_path / "sample_submission.csv", index=False)
    settings = {"input_dir": tmp_path, "vector_files": VECTORS}
    settings |= {"output_dir": tmp_path / "results", "models": 1, "epochs": 1, "lstm_units": 8}
    names = run_sections("12 Report", **settings)
    assert len(names["submissions"]) == 50 and names["submissions"]["LSTM"].between(0, 1).all()
    assert list(names["score"]("a comment")) == ["toxicity"]  # nobody knows of the others
    rows = json.loads((tmp_path / "results" / "report.json").read_text())["rows"]
    assert rows["fitted"] + rows["held_out"] == ROWS and rows["scored"] == 50
