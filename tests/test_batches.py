"""Section 8, Batches: every row once, among rows of its length, with its own labels; and what a row weighs."""

import math
from unittest import mock

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

SEEDS = [None, 3]  # sorted, shuffled


def comments(lengths):
    """Token ids and offsets of comments of the given lengths; each token tells its row: 2 + row, 2 + row + 1, …"""
    offsets = np.append(0, np.cumsum(lengths))
    tokens = [2 + row + place for row, length in enumerate(lengths) for place in range(length)]
    return np.array(tokens, np.int32), offsets


def buckets(lengths, batch_size, seed=None, rows=None, **arguments):
    rows = np.arange(len(lengths)) if rows is None else rows
    return kernel.LengthBuckets(*comments(lengths), rows, batch_size, seed=seed, **arguments)


def lengths_like_comments(rows):
    """Lengths as those of the competition's comments: median 36, mean 50, at most 220."""
    return np.random.default_rng(1).lognormal(math.log(36), 0.9, rows).astype(int).clip(1, 220)


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60), data=st.data())
def test_epoch_holds_each_row_once(seed, lengths, data):
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(lengths))), min_size=1, unique=True)))
    batch_size = data.draw(st.integers(1, 8))
    with mock.patch.object(kernel.LengthBuckets, "POOL", data.draw(st.sampled_from([1, 3, 50]))):
        check_epochs(buckets(lengths, batch_size, seed, rows), lengths, batch_size, rows)


def check_epochs(batches, lengths, batch_size, rows):
    for _ in range(2):
        seen = []
        for index in range(len(batches)):
            (padded,) = batches[index]
            batch_rows = (padded[:, 0] - 2).tolist()  # the first token tells the row
            longest = max(lengths[row] for row in batch_rows)
            for row, tokens in zip(batch_rows, padded.tolist(), strict=True):
                assert tokens == [2 + row + place for place in range(lengths[row])] + [0] * (longest - lengths[row])
            assert len(batch_rows) <= batch_size and padded.dtype == np.int32
            seen += batch_rows
        assert sorted(seen) == sorted(rows)
        assert seen == batches.order.tolist()
        batches.draw()


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=2, max_size=250), batch_size=st.integers(1, 8))
def test_first_two_batches_differ_in_length(seed, lengths, batch_size):
    """Keras takes a dimension that is equal in the first two batches for one that never changes."""
    batches = buckets(lengths, batch_size, seed)
    for _ in range(2):
        longest = [batches[index][0].shape[1] for index in range(len(batches))]
        assert len(set(longest)) == 1 or longest[0] != longest[1]
        batches.draw()


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(1, 5000), batch_size=st.integers(1, 8))
@example(rows=401, batch_size=8)
@example(rows=9, batch_size=8)
def test_batches_are_almost_equal_in_size(rows, batch_size):
    """Every step moves the weights alike, so a row alone in a batch would count as much as a whole batch."""
    sizes = [len(batch) for batch in buckets([1] * rows, batch_size, seed=0).batches]
    assert min(sizes) >= min(rows, batch_size) / 2


@pytest.mark.parametrize(
    "rows, batch_size", [(1, 32), (9_600, 32), (19_199, 32), (19_200, 64), (57_000, 128), (153_600, 512), (10**7, 512)]
)
def test_batch_size_gives_an_epoch_300_steps_and_more(rows, batch_size):
    assert kernel.batch_size_for(rows) == batch_size


@pytest.mark.parametrize(
    "lengths, batch_size, shapes",
    [
        ([4], 8, [(1, 4)]),
        ([4, 2, 3], 8, [(3, 4)]),
        ([5] * 6, 2, [(2, 5)] * 3),
        ([1, 9, 1, 9], 2, [(2, 9), (2, 1)]),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_shapes(lengths, batch_size, shapes, seed):
    batches = buckets(lengths, batch_size, seed)
    assert [batches[index][0].shape for index in range(len(batches))] == shapes


def test_seed_decides_the_order():
    def two_epochs(seed):
        batches = buckets(lengths_like_comments(500), 16, seed)
        first = batches.order.tolist()
        batches.draw()
        return first, batches.order.tolist()

    first, second = two_epochs(1)
    assert first != second
    assert two_epochs(1) == (first, second)
    assert two_epochs(2)[0] != first
    sorted_first, sorted_second = two_epochs(None)
    assert sorted_first == sorted_second


def test_shuffled_batches_come_in_no_order_of_length():
    batches = buckets(lengths_like_comments(20_000), 64, seed=0)
    longest = [batches.lengths[rows].max() for rows in batches.batches[2:]]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.2


@pytest.mark.parametrize("seed", SEEDS)
def test_labels_and_weights_belong_to_their_rows(seed):
    row = np.arange(40, dtype=np.float32)
    labels = {"one": row[:, None], "many": np.column_stack([row + 0.25, row + 0.5])}
    weights = {"one": row + 100, "many": row + 200}
    batches = buckets(lengths_like_comments(40), 7, seed, labels=labels, weights=weights)
    for index in range(len(batches)):
        padded, batch_labels, batch_weights = batches[index]
        row = padded[:, 0] - 2.0  # the first token tells the row
        assert np.array_equal(batch_labels["one"], row[:, None])
        assert np.array_equal(batch_labels["many"], np.column_stack([row + 0.25, row + 0.5]))
        assert np.array_equal(batch_weights["one"], row + 100)
        assert np.array_equal(batch_weights["many"], row + 200)


@pytest.mark.parametrize("seed, most", [(None, 0.02), (3, 0.05)])
def test_little_padding(seed, most):
    lengths = lengths_like_comments(60_000)
    batches = buckets(lengths, 256, seed)
    computed = sum(lengths[rows].max() * len(rows) for rows in batches.batches)
    assert 1 - lengths.sum() / computed < most
    assert 1 - lengths.mean() / lengths.max() > 0.7  # with all rows padded alike


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 100) | st.none()), min_size=1, max_size=20
    )
)
def test_sample_weights(rows):
    """In each set of rows that the metric ranks, both classes weigh the same: the definition, row by row."""
    frame = pd.DataFrame(rows, columns=["toxic", "male", "female", "raters"]).astype({"raters": np.float32})
    expected = []
    for row in frame.itertuples():
        sets = [(1.0, frame)]
        for identity in ("male", "female"):
            same_class = frame[identity] == frame["toxic"]
            mention, same = getattr(row, identity), getattr(row, identity) == row.toxic
            sets += [(0.5, frame[frame[identity]])] if mention else []  # subgroup
            sets += [(0.5, frame[same_class] if same else frame[~same_class])]  # BNSP or BPSN
        shares = [share / (rows["toxic"] == row.toxic).sum() for share, rows in sets]
        expected.append(sum(shares) * math.log(2 + (1 if math.isnan(row.raters) else row.raters)))
    weights = kernel.sample_weights(
        frame["toxic"].to_numpy(), frame[["male", "female"]].to_numpy(), frame["raters"].to_numpy()
    )
    assert weights.mean() == pytest.approx(1, rel=1e-5)
    assert weights / weights[0] == pytest.approx(np.array(expected) / expected[0], rel=1e-5)
    assert weights.dtype == np.float32


def test_both_classes_weigh_the_same():
    generator = np.random.default_rng(0)
    toxic, mentioned = generator.random(5000) < 0.2, generator.random((5000, 9)) < 0.1
    weights = kernel.sample_weights(toxic, mentioned, np.full(5000, 4))
    assert weights[toxic].sum() == pytest.approx(weights[~toxic].sum(), rel=1e-4)


def test_no_sample_weight_rules_a_batch():
    toxic, mentioned = np.arange(1000) % 2 == 0, np.zeros((1000, 9), bool)
    mentioned[:501, 0] = toxic[:501]  # harmless rows with the identity are rare
    mentioned[1, 0] = True
    weights = kernel.sample_weights(toxic, mentioned, np.full(1000, 4))
    assert np.argmax(weights) == 1 and 15 < weights[1] < 21 and weights.mean() == pytest.approx(1, rel=1e-5)
