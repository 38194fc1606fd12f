"""Model: what a score may depend on, what learns and what does not, the loss, and its steps."""

import keras
import kernel
import numpy as np
import pytest
from keras import mixed_precision, ops
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

WORDS = 12  # token numbers
TRAINED_WORDS = 6  # have a vector of their own: tokens 1 to 6
WIDTH, UNITS = 5, 4
NAN = float("nan")


def make_pretrained(seed=0):
    matrix = np.random.default_rng(seed).normal(size=(WORDS, WIDTH)).astype(np.float16)
    return kernel.pretrained_vectors(matrix, "cpu:0")


def make_model(seed=0):
    """A small model without dropout, whose weights are random, those that start as zeros, too."""
    keras.utils.set_random_seed(seed)
    model = kernel.build_model(make_pretrained(seed), TRAINED_WORDS, UNITS)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    trained = embeddings_of(model)[1]
    trained.assign(np.random.default_rng(seed).normal(size=trained.shape))
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
    return ops.convert_to_numpy(model(np.int32(tokens)))


def close(actual, expected):
    return np.allclose(actual, expected, rtol=0, atol=1e-5)


def test_a_logit_for_each_label(model):
    assert logits(model, batch(comments(3))).shape == (3, 7)


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
        other = batch([[*row[:place], 2, *row[place + 1 :]]])
        assert abs(logits(model, other) - whole).max() > 1e-3, place


def test_the_words_are_pooled_by_maximum_and_mean(model):
    """Of the GRU's outputs; padding, which could be the highest, counts in neither."""
    gru = model.get_layer("both_gru").output
    outputs = keras.Model(model.input, [gru, model.get_layer("dense_1").input])
    rows = comments(6)
    sequence, pooled = map(ops.convert_to_numpy, outputs(batch(rows, padding=3)))
    words = [of_row[: len(row)] for of_row, row in zip(sequence, rows, strict=True)]
    assert close(pooled, [np.append(of.max(axis=0), of.mean(axis=0)) for of in words])


def test_rare_words_share_a_trained_vector_and_differ_by_the_pretrained_one():
    model = make_model()
    assert abs(logits(model, [[8]]) - logits(model, [[9]])).max() > 1e-3
    pretrained, trained = embeddings_of(model)
    assert pretrained.shape == (WORDS, WIDTH)
    assert trained.shape == (TRAINED_WORDS + 2, kernel.TRAINED_WIDTH)
    pretrained.assign(np.ones((WORDS, WIDTH)))
    assert np.array_equal(logits(model, [[8]]), logits(model, [[9]]))
    distinct = np.concatenate([logits(model, [[token]]) for token in range(1, TRAINED_WORDS + 2)])
    assert len(np.unique(distinct.round(5), axis=0)) == TRAINED_WORDS + 1


def test_a_model_that_trains_no_words_has_no_vectors_for_them():
    model = kernel.build_model(make_pretrained(), 0, UNITS)
    assert len(embeddings_of(model)) == 1
    assert model.get_layer("both_lstm").get_weights()[0].shape[0] == WIDTH


def test_models_share_the_pretrained_vectors_and_nothing_else():
    pretrained = make_pretrained()
    models = [kernel.build_model(pretrained, TRAINED_WORDS, UNITS) for _ in range(2)]
    one, other = ({id(weight) for weight in model.weights} for model in models)
    assert one & other == {id(pretrained.embeddings)}


# --- the loss ---


def make_labels(rows, identities=3, mentioned=0.4):
    """Logits, toxicity, subtypes and weights of comments, as loss_of_batch takes them."""
    generator = np.random.default_rng(2)
    toxicity = np.column_stack(
        [generator.random(rows), generator.random((rows, identities)) < mentioned]
    )
    of_rows = generator.normal(0, 2, (rows, 7)), toxicity, generator.random((rows, 6))
    return [values.astype(np.float32) for values in (*of_rows, generator.random(rows))]


def crossentropy(shares, logits):
    probability = expit(logits.astype(float))
    return -(shares * np.log(probability) + (1 - shares) * np.log(1 - probability))


def test_cross_entropy_of_shares():
    logits, _, shares, _ = make_labels(50)
    expected = crossentropy(shares, logits[:, 1:])
    assert close(kernel.masked_crossentropy(shares, logits[:, 1:]), expected.mean(axis=1))
    unknown = np.random.default_rng(0).random((50, 6)) < 0.5
    shares[unknown], expected[unknown] = NAN, 0
    assert close(kernel.masked_crossentropy(shares, logits[:, 1:]), expected.mean(axis=1))
    hard = (logits[:, :1] > 1).astype(np.float32)
    loss = np.mean(kernel.masked_crossentropy(hard, logits[:, 1:2]))
    assert loss == pytest.approx(log_loss(hard[:, 0], expit(logits[:, 1].astype(float))), rel=1e-5)


def test_loss_of_certain_scores_is_finite():
    shares, logit = np.float32([[1, 0, 0.5, NAN]]), np.float32([[-1000, 1000, 1000, -1000]])
    expected = [(1000 + 1000 + 500 + 0) / 4]
    assert np.array_equal(kernel.masked_crossentropy(shares, logit), expected)


def mean_loss_of_pairs(toxic, logit, rows):
    """Sum over the pairs of a set of rows, one by one, over 1 + their number."""
    places = np.flatnonzero(rows)
    pairs = [(i, j) for i in places for j in places if toxic[i] and not toxic[j]]
    return sum(np.log1p(np.exp(logit[j] - logit[i])) for i, j in pairs) / (1 + len(pairs))


@pytest.mark.parametrize("share_mentioned", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("unknown", [0, 9])
def test_pairs_are_ranked_in_each_set_of_rows_of_the_metric(share_mentioned, unknown):
    """Comments of which nobody knows whom they mention are in none of an identity's sets."""
    logits, labels, *_ = make_labels(30, mentioned=share_mentioned)
    labels[:unknown, 1:] = NAN
    logit, toxic, known = logits[:, 0].astype(float), labels[:, 0] >= 0.5, np.arange(30) >= unknown
    expected = mean_loss_of_pairs(toxic, logit, np.ones(30, bool))
    for column in labels.T[1:] == 1:
        for rows in (column, known & (column != toxic), known & (column == toxic)):
            expected += mean_loss_of_pairs(toxic, logit, rows) / 3
    assert close(kernel.loss_of_pairs(labels, logits[:, :1]), expected)


def test_the_loss_of_a_batch_is_that_of_its_parts():
    logits, toxicity, subtypes, weights = make_labels(40)
    of_toxicity = crossentropy(toxicity[:, 0], logits[:, 0])
    of_subtypes = crossentropy(subtypes, logits[:, 1:]).mean(axis=1)
    expected = np.mean(weights * (of_toxicity + kernel.SUBTYPES_WEIGHT * of_subtypes))
    expected += kernel.PAIRS_WEIGHT * float(kernel.loss_of_pairs(toxicity, logits[:, :1]))
    assert close(kernel.loss_of_batch(logits, toxicity, subtypes, weights), expected)


def test_the_pairs_take_most_of_the_bias_of_an_identity_out_of_the_scores():
    """What they are for. Comments that name it are toxic six times as often; a word tells toxic
    ones in part. How much higher the identity alone is scored, beside a logistic regression of the
    same comments.
    """
    generator = np.random.default_rng(0)
    identity = generator.random(600) < 0.2
    toxic = generator.random(600) < np.where(identity, 0.6, 0.1)
    features = [identity, toxic + generator.normal(size=600), np.ones(600)]
    features = np.column_stack(features).astype(np.float32)
    labels = np.column_stack([toxic, identity]).astype(np.float32)
    dense = keras.layers.Dense(1, use_bias=False)
    linear = keras.Sequential([dense])

    def loss(labels, logits):
        of_raters = kernel.masked_crossentropy(labels[:, :1], logits)
        return of_raters + kernel.PAIRS_WEIGHT * kernel.loss_of_pairs(labels, logits)

    linear.compile(keras.optimizers.Adam(0.3), loss)
    linear.fit(features, labels, batch_size=600, epochs=50, verbose=0)
    biased = LogisticRegression(C=1e6, fit_intercept=False).fit(features, toxic).coef_[0]
    of_identity, of_word, _ = dense.get_weights()[0].ravel()
    assert of_identity < biased[0] / 2 and of_word > biased[1] / 2


# --- steps ---


def labels_of(rows, seed=2):
    """Toxicity, subtypes and weights of so many comments."""
    generator = np.random.default_rng(seed)
    sizes = (rows, 10), (rows, 6), (rows,)
    return [generator.random(size).astype(np.float32) for size in sizes]


@pytest.fixture
def half_precision():
    mixed_precision.set_dtype_policy("mixed_float16")
    yield
    mixed_precision.set_dtype_policy("float32")


def moved(model, batch, steps=1, rate=0.01, momentum=0.5):
    """{path of weight: how much steps on a batch move it}, and their losses."""
    before = {weight.path: weight.numpy() for weight in model.weights}
    train_step = kernel.make_train_step(model, kernel.make_optimizer(model))
    losses = [float(train_step(rate, momentum, *batch)) for _ in range(steps)]
    return {weight.path: weight.numpy() - before[weight.path] for weight in model.weights}, losses


def test_pretrained_vectors_stay_and_trained_ones_learn():
    model = make_model()
    changes, losses = moved(model, (batch(comments(8)), *labels_of(8)), steps=5)
    pretrained, trained = embeddings_of(model)
    still = [path for path, change in changes.items() if not change.any()]
    assert sorted(still) == sorted(weight.path for weight in model.non_trainable_weights)
    assert pretrained.path in still and losses[-1] < losses[0]
    used = {min(token, TRAINED_WORDS + 1) for tokens in comments(8) for token in tokens}
    learned = np.flatnonzero(abs(changes[trained.path]).max(axis=1) > 1e-3)
    assert {*learned} == used  # the others shrink a little, by weight decay


def test_half_precision_takes_the_same_steps(half_precision):
    model = make_model()
    scores = logits(model, batch(comments(8)))
    assert scores.dtype == np.float32 and model.get_layer("both_gru").output.dtype == "float16"
    _, losses = moved(model, (batch(comments(8)), *labels_of(8)), steps=30)
    assert losses[-1] < losses[0] - 0.1


def test_an_overflow_in_half_precision_skips_its_step(half_precision):
    """The weight is small enough for the loss, but too large for its gradient: half precision ends
    at 65504.
    """
    model = make_model()
    toxicity, subtypes, weights = labels_of(8)
    changes, (loss,) = moved(model, (batch(comments(8)), toxicity, subtypes, weights * 3e6))
    assert np.isfinite(loss) and not any(change.any() for change in changes.values())


def make_word_model(optimizer):
    """Gives tokens trained vectors of one number, zeros at first; a label is its gradient."""
    tokens = keras.Input((None,), dtype="int32")
    embedding = kernel.DenseEmbedding(3, 1, embeddings_initializer="zeros")
    model = keras.Model(tokens, embedding(tokens))
    model.compile(optimizer, loss=lambda gradients, vectors: ops.sum(gradients * vectors))
    return model


def plain_steps():
    return mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(1.0))


@pytest.mark.parametrize("gradients", [[4.0, 0.001], [0.001, 4.0]])
def test_an_overflow_of_one_occurrence_of_a_word_skips_the_step(half_precision, gradients):
    """The gradient of the word's vector overflows alone, before a finite part and behind it."""
    model = make_word_model(plain_steps())
    for labels, moved in ((gradients, [0, 0, 0]), ([0.5, 0.5], [0, -1, 0])):
        model.train_on_batch(np.array([[1, 1]]), np.array(labels, np.float32)[None, :, None])
        assert np.array_equal(model.get_weights()[0].ravel(), moved)


def test_the_gradient_of_a_frequent_word_is_summed_in_full_precision(half_precision):
    """Half precision knows no 2049: a sum of ones would stay at 2048, the scaled one overflow."""
    model = make_word_model(plain_steps())
    model.train_on_batch(np.full((1, 3000), 1), np.ones((1, 3000, 1), np.float32))
    assert np.array_equal(model.get_weights()[0].ravel(), [0, -3000, 0])


@pytest.mark.parametrize("times", [1, 8])
def test_a_word_moves_by_its_whole_gradient_however_often_it_occurs(times):
    """Adam moves by the rate where a gradient stays the same (Kingma, Ba 2015, section 2.1)."""
    model = make_word_model(keras.optimizers.Adam(0.01))
    for _ in range(20):
        model.train_on_batch(np.full((1, times), 1), np.ones((1, times, 1), np.float32))
    assert model.get_weights()[0].ravel() == pytest.approx([0, -0.2, 0], abs=1e-4)
