"""Model: what a score may depend on, what learns and what does not, and the loss."""

import keras
import kernel
import numpy as np
import pytest
from keras import ops
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

WORDS = 12  # token numbers
TRAINED_WORDS = 6  # have a vector of their own: tokens 1 to 6
WIDTH, UNITS = 5, 4
NAN = float("nan")


def make_model(seed=0):
    """A small model without dropout, whose weights are all random, those that start as zeros included."""
    keras.utils.set_random_seed(seed)
    generator = np.random.default_rng(seed)
    pretrained = kernel.pretrained_vectors(generator.normal(size=(WORDS, WIDTH)).astype(np.float16), "cpu:0")
    model = kernel.build_model(pretrained, TRAINED_WORDS, UNITS)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    trained = embeddings_of(model)[1]
    trained.assign(generator.normal(size=trained.shape))
    return model


@pytest.fixture(scope="module")
def model():
    return make_model()


def embeddings_of(model):
    """The vectors that stay, and those that are trained."""
    embeddings = [layer for layer in model.layers if isinstance(layer, keras.layers.Embedding)]
    return [layer.embeddings for layer in sorted(embeddings, key=lambda layer: layer.trainable)]


def comments(count=8, seed=1):
    """Lists of tokens, of lengths 1, 2, …"""
    generator = np.random.default_rng(seed)
    return [generator.integers(1, WORDS, length).tolist() for length in range(1, count + 1)]


def batch(rows, padding=0):
    padded = np.zeros((len(rows), max(map(len, rows)) + padding), np.int32)
    for row, tokens in enumerate(rows):
        padded[row, : len(tokens)] = tokens
    return padded


def logits(model, tokens):
    """All logits, heads side by side: (batch, 7)."""
    return np.concatenate([ops.convert_to_numpy(head) for head in model(np.int32(tokens)).values()], axis=1)


def close(actual, expected):
    return np.allclose(actual, expected, rtol=0, atol=1e-5)


def test_heads(model):
    heads = {name: head.shape for name, head in model(batch(comments(3))).items()}
    assert heads == {"toxicity": (3, 1), "subtypes": (3, 6)}


@pytest.mark.parametrize("padding", [0, 50])
def test_score_depends_on_the_comment_alone(model, padding):
    rows = comments()
    alone = np.concatenate([logits(model, batch([row])) for row in rows])
    assert np.ptp(alone, axis=0).min() > 1e-3  # comments differ
    assert close(logits(model, batch(rows, padding)), alone)
    order = np.random.default_rng(0).permutation(len(rows))
    assert close(logits(model, batch([rows[i] for i in order], padding)), alone[order])


def test_order_of_words_matters(model):
    there, back = logits(model, batch([[3, 8, 5, 9, 4]])), logits(model, batch([[4, 9, 5, 8, 3]]))
    assert abs(there - back).max() > 1e-3


def test_each_word_matters(model):
    """The first and the last word included: both directions read the whole comment."""
    row = [3, 8, 5, 9, 4]
    whole = logits(model, batch([row]))
    for place in range(len(row)):
        assert abs(logits(model, batch([[*row[:place], 2, *row[place + 1 :]]])) - whole).max() > 1e-3, place


def test_reversal():
    rows = comments(5)
    tokens = batch(rows, padding=2)
    values = np.random.default_rng(0).normal(size=(*tokens.shape, 3)).astype(np.float32)
    places = kernel.ReversedPlaces()(tokens)
    expected = values.copy()
    for row, words in enumerate(rows):
        expected[row, : len(words)] = values[row, : len(words)][::-1]
    reversed_values = kernel.reverse(values, places)
    assert np.array_equal(reversed_values, expected)
    assert np.array_equal(kernel.reverse(reversed_values, places), values)


@pytest.mark.parametrize("recurrent", [keras.layers.LSTM, keras.layers.GRU])
def test_both_directions_are_those_of_keras_own_layer_on_a_single_comment(recurrent):
    sequence, tokens = keras.Input((None, 3)), keras.Input((None,), dtype="int32")
    ours = kernel.bidirectional(recurrent, "ours", UNITS, sequence, kernel.ReversedPlaces()(tokens))
    model = keras.Model([sequence, tokens], ours)
    forward, backward = (model.get_layer(f"ours_{direction}") for direction in ("forward", "backward"))
    expected = keras.layers.Bidirectional(recurrent(UNITS, return_sequences=True))
    expected.build((None, None, 3))
    expected.set_weights([*forward.get_weights(), *backward.get_weights()])
    rows = comments(4)
    values = np.random.default_rng(0).normal(size=(*batch(rows).shape, 3)).astype(np.float32)
    both = ops.convert_to_numpy(model([values, batch(rows)]))
    for row, words in enumerate(rows):
        own = values[row : row + 1, : len(words)]
        assert close(both[row, : len(words)], ops.convert_to_numpy(expected(own))[0])


def test_maximum_and_mean():
    rows = comments(6)
    tokens = batch(rows, padding=3)
    values = np.random.default_rng(0).uniform(-1, -0.5, (*tokens.shape, 4)).astype(np.float32)
    values[tokens == 0] = 7.0
    pooled = kernel.max_and_mean(ops.convert_to_tensor(values), ops.convert_to_tensor(tokens))
    words = [values[row, : len(words)] for row, words in enumerate(rows)]
    assert close(pooled, [np.concatenate([word.max(axis=0), word.mean(axis=0)]) for word in words])


def test_rare_words_share_a_trained_vector_and_differ_by_the_pretrained_one():
    model = make_model()
    assert abs(logits(model, [[8]]) - logits(model, [[9]])).max() > 1e-3
    pretrained, trained = embeddings_of(model)
    assert pretrained.shape == (WORDS, WIDTH) and trained.shape == (TRAINED_WORDS + 2, kernel.TRAINED_WIDTH)
    pretrained.assign(np.ones((WORDS, WIDTH)))
    assert np.array_equal(logits(model, [[8]]), logits(model, [[9]]))
    distinct = np.concatenate([logits(model, [[token]]) for token in range(1, TRAINED_WORDS + 2)])
    assert len(np.unique(distinct.round(5), axis=0)) == TRAINED_WORDS + 1


def test_a_model_that_trains_no_words_has_no_vectors_for_them():
    model = kernel.build_model(kernel.pretrained_vectors(np.ones((WORDS, WIDTH), np.float16), "cpu:0"), 0, UNITS)
    assert len(embeddings_of(model)) == 1
    assert model.get_layer("lstm_forward").get_weights()[0].shape[0] == WIDTH


def train_step(model, loss_weights, labels, weights=None):
    """One plain step on a batch of comments; {path of weight: how much it moved}."""
    model.compile(
        keras.optimizers.SGD(1.0),
        loss=dict.fromkeys(model.output, kernel.masked_crossentropy),
        loss_weights=loss_weights,
        run_eagerly=True,
    )
    before = [ops.convert_to_numpy(weight) for weight in model.weights]
    model.train_on_batch(batch(comments(len(labels["toxicity"]))), labels, weights)
    pairs = zip(model.weights, before, strict=True)
    return {weight.path: ops.convert_to_numpy(weight) - old for weight, old in pairs}


def make_labels(rows):
    generator = np.random.default_rng(2)
    sizes = {"toxicity": 1, "subtypes": 6}
    return {name: generator.random((rows, size)).astype(np.float32) for name, size in sizes.items()}


def test_pretrained_vectors_stay_and_trained_ones_learn():
    model = make_model()
    moved = train_step(model, {"toxicity": 1.0, "subtypes": 0.5}, make_labels(8))
    pretrained, trained = embeddings_of(model)
    assert not moved[pretrained.path].any()
    used = {min(token, TRAINED_WORDS + 1) for tokens in comments(8) for token in tokens}
    learned = np.flatnonzero(moved[trained.path].any(axis=1))
    assert set(learned) == used
    still = [path for path, change in moved.items() if not change.any()]
    assert sorted(still) == sorted(weight.path for weight in model.non_trainable_weights)


def test_unknown_shares_teach_nothing():
    only_subtypes = {"toxicity": 0.0, "subtypes": 1.0}
    labels = make_labels(4)
    labels["subtypes"][:] = NAN
    assert not any(change.any() for change in train_step(make_model(), only_subtypes, labels).values())

    labels = make_labels(4)
    labels["subtypes"][2:] = NAN  # comments 0 and 1 stand in both batches
    half = train_step(make_model(), only_subtypes, labels)
    known = train_step(make_model(), only_subtypes, {name: values[:2] for name, values in labels.items()})
    assert any(change.any() for change in known.values())
    for half_change, known_change in zip(half.values(), known.values(), strict=True):
        assert close(2 * half_change, known_change)  # the mean is over all rows of the batch


@pytest.mark.parametrize("head", kernel.HEADS)
def test_weights_of_rows_count_in_each_head(head):
    only_head, labels = dict.fromkeys(kernel.HEADS, 0.0) | {head: 1.0}, make_labels(4)
    half = train_step(make_model(), only_head, labels, weights=np.float32([1, 1, 0, 0]))
    whole = train_step(make_model(), only_head, {name: values[:2] for name, values in labels.items()})
    assert any(change.any() for change in whole.values())
    for half_change, whole_change in zip(half.values(), whole.values(), strict=True):
        assert close(2 * half_change, whole_change)  # the mean is over all rows of the batch


def test_loss_of_shares():
    generator = np.random.default_rng(0)
    shares = generator.random((50, 6)).astype(np.float32)
    logit = generator.normal(0, 3, (50, 6)).astype(np.float32)
    probability = 1 / (1 + np.exp(-logit.astype(float)))
    expected = -(shares * np.log(probability) + (1 - shares) * np.log(1 - probability))
    assert close(kernel.masked_crossentropy(shares, logit), expected.mean(axis=1))
    unknown = generator.random((50, 6)) < 0.5
    shares[unknown], expected[unknown] = NAN, 0
    assert close(kernel.masked_crossentropy(shares, logit), expected.mean(axis=1))


def test_loss_of_hard_labels():
    generator = np.random.default_rng(0)
    toxic = generator.random((200, 1)) < 0.3
    logit = generator.normal(size=(200, 1)).astype(np.float32)
    loss = np.mean(kernel.masked_crossentropy(toxic.astype(np.float32), logit))
    assert loss == pytest.approx(log_loss(toxic[:, 0], 1 / (1 + np.exp(-logit[:, 0].astype(float)))), rel=1e-5)


def test_loss_of_certain_scores_is_finite():
    shares, logit = np.float32([[1, 0, 0.5, NAN]]), np.float32([[-1000, 1000, 1000, -1000]])
    assert np.array_equal(kernel.masked_crossentropy(shares, logit), [(1000 + 1000 + 500 + 0) / 4])


def test_models_share_the_pretrained_vectors_and_nothing_else():
    pretrained = kernel.pretrained_vectors(np.ones((WORDS, WIDTH), np.float16), "cpu:0")
    models = [kernel.build_model(pretrained, TRAINED_WORDS, UNITS) for _ in range(2)]
    one, other = ({id(weight) for weight in model.weights} for model in models)
    assert one & other == {id(pretrained.embeddings)}


def mean_loss_of_pairs(toxic, logit, rows):
    """Sum over the pairs of a set of rows, one by one, over 1 + their number."""
    places = np.flatnonzero(rows)
    losses = [np.log1p(np.exp(logit[j] - logit[i])) for i in places for j in places if toxic[i] and not toxic[j]]
    return sum(losses) / (1 + len(losses))


@pytest.mark.parametrize("share_mentioned", [0.0, 0.4, 1.0])
def test_loss_of_toxicity_ranks_pairs_in_each_set_of_the_metric(share_mentioned):
    generator = np.random.default_rng(3)
    share, mentioned = generator.random(30), generator.random((30, 3)) < share_mentioned
    logit = generator.normal(0, 2, 30)
    toxic = share >= 0.5
    labels = np.column_stack([share, mentioned]).astype(np.float32)
    loss = ops.convert_to_numpy(kernel.toxicity_loss(labels, logit[:, None].astype(np.float32)))
    of_pairs = mean_loss_of_pairs(toxic, logit, np.ones(30, bool))
    for column in mentioned.T:
        of_pairs += (
            sum(mean_loss_of_pairs(toxic, logit, rows) for rows in (column, column != toxic, column == toxic)) / 3
        )
    probability = 1 / (1 + np.exp(-logit))
    crossentropy = -(share * np.log(probability) + (1 - share) * np.log(1 - probability))
    assert close(loss, crossentropy + kernel.PAIRS_WEIGHT * of_pairs)


def test_loss_of_toxicity_is_lower_where_a_harmless_comment_with_an_identity_is_scored_lower():
    """The pair of the BPSN set, on which a biased model fails; the cross-entropy of both is the same."""
    labels = np.array([[1, 0], [0, 1]], np.float32)

    def loss(toxic, harmless):
        logits = np.array([[toxic], [harmless]], np.float32)
        of_pairs = kernel.toxicity_loss(labels, logits) - kernel.masked_crossentropy(labels[:, :1], logits)
        return np.mean(ops.convert_to_numpy(of_pairs))

    assert loss(1.0, -1.0) < loss(0.0, 0.0) < loss(-1.0, 1.0)


def test_the_pairs_take_most_of_the_bias_of_an_identity_out_of_the_scores():
    """What they are for. Comments that name it are toxic six times as often; a word tells toxic ones in part. How much
    higher the identity alone is scored, beside a logistic regression of the same comments.
    """
    generator = np.random.default_rng(0)
    identity = generator.random(600) < 0.2
    toxic = generator.random(600) < np.where(identity, 0.6, 0.1)
    features = np.column_stack([identity, toxic + generator.normal(size=600), np.ones(600)]).astype(np.float32)
    labels = np.column_stack([toxic, identity]).astype(np.float32)
    dense = keras.layers.Dense(1, use_bias=False)
    linear = keras.Sequential([dense])
    linear.compile(keras.optimizers.Adam(0.3), kernel.toxicity_loss)
    linear.fit(features, labels, batch_size=600, epochs=50, verbose=0)
    biased = LogisticRegression(C=1e6, fit_intercept=False).fit(features, toxic).coef_[0]
    (of_identity, of_word, _) = dense.get_weights()[0].ravel()
    assert of_identity < biased[0] / 2 and of_word > biased[1] / 2
