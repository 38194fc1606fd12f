"""Holdout: one text on one side, all labels on both."""

import re

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SHARE = 0.1
WRITINGS = [str, str.upper, "{}!!!".format, " {}\n".format, lambda text: text.replace(" ", "  ")]


def letters(text):
    """What is left of a text without case, symbols and spacing."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


@pytest.fixture(scope="module")
def rows():
    """6,000 comments in random order, a quarter of them written again in another way, one 20 times;
    their labels.
    """
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice([*"aeioulmnrst"], 5)) for _ in range(300)]
    texts = []
    for length in generator.integers(3, 9, 4500):
        texts.append(" ".join(generator.choice(words, length)))
    labels = generator.random((4500, 5)) < [0.5, 0.2, 0.08, 0.02, 0.01]
    again = [*generator.integers(0, 4500, 1480), *[0] * 20]
    for number in again:
        write = generator.choice(WRITINGS)
        texts.append(write(texts[number]))
    labels = np.concatenate([labels, labels[again]])
    order = generator.permutation(6000)
    return pd.Series(texts)[order], labels[order]


def held_out(rows, seed):
    comments, labels = rows
    return kernel.split_holdout(kernel.text_groups(comments), labels, SHARE, seed)


@pytest.mark.parametrize("seed", range(3))
def test_holdout_is_like_all_rows_and_no_text_stands_on_both_sides(rows, seed):
    comments, labels = rows
    texts = comments.map(letters)
    marked = held_out(rows, seed)
    assert texts.nunique() < len(texts)
    assert not set(texts[marked]) & set(texts[~marked])
    assert marked.shape == (6000,) and marked.dtype == bool
    assert marked.mean() == pytest.approx(SHARE, abs=0.01)
    share = labels.mean(axis=0)
    # how far off a random sample of the rows is
    chance = np.sqrt(share * (1 - share) / marked.sum())
    difference = labels[marked].mean(axis=0) - share
    assert (abs(difference) < 2 * chance).all()
    for side in (marked, ~marked):
        assert labels[side].any(axis=0).all()


def test_seed_decides(rows):
    assert np.array_equal(held_out(rows, 5), held_out(rows, 5))
    assert not np.array_equal(held_out(rows, 5), held_out(rows, 6))


@pytest.mark.parametrize(
    "text, other, same",
    [
        ("You are right", "you ARE right!!", True),
        ("a  fool", "A fool\n", True),
        ("the U.S.A.", "The USA", True),
        ("so_what", "So what?", True),
        ("ДА", "да", True),
        ("", "...", True),
        ("right", "wrong", False),
        ("page 1", "page 2", False),
        ("да", "нет", False),
    ],
)
def test_same_text(text, other, same):
    first, second = kernel.text_groups(pd.Series([text, other]))
    assert (first == second) == same


ROW = st.tuples(st.integers(0, 30), st.booleans(), st.booleans())  # its group and two labels


@settings(max_examples=100)
@given(
    rows=st.lists(ROW, min_size=1, max_size=80),
    share=st.floats(0.01, 0.5),
    seed=st.integers(0, 2**32 - 1),
)
def test_groups_stay_whole_and_give_their_share(rows, share, seed):
    groups, *labels = np.array(rows).T
    groups = pd.factorize(groups)[0]
    labels = np.array(labels).T.astype(bool)
    marked = kernel.split_holdout(groups, labels, share, seed)
    held, fitted = set(groups[marked]), set(groups[~marked])
    assert not held & fitted
    assert abs(len(held) - share * len(held | fitted)) < 1  # as near as whole groups can be
    # each combination of labels gives its share, too
    labels_of_groups = pd.DataFrame(labels).groupby(groups).any()
    for members in labels_of_groups.groupby([0, 1]).groups.values():
        members_held = held & set(members)
        assert abs(len(members_held) - share * len(members)) < 1 + 1e-9
