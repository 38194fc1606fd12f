"""Training: the learning rate, the clock, the moving average, overflow, and models that follow each other."""

import gc
import threading
from collections import Counter
from functools import partial
from types import SimpleNamespace

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import mixed_precision, ops
from scipy.special import expit
from sklearn.metrics import roc_auc_score

ROWS, WORDS = 507, 20
FIT_ROWS, HOLDOUT_ROWS, TEST_ROWS = np.arange(401), np.arange(401, 457), np.arange(457, ROWS)
OFFENSIVE = [2, 3, 4]  # a comment with one of these tokens is toxic
EPOCHS, BATCH_SIZE, PEAK_RATE = 10, 16, 0.01
STEPS_OF_EPOCH = 26
UNLIMITED = 1e9
IDS = pd.Series([f"id {row}" for row in TEST_ROWS])


class Clock:
    """Shows the seconds that the test lets pass."""

    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(kernel, "time", Clock())
    return kernel.time


def make_data():
    """Tokens, offsets and labels of comments of 2 to 9 words; a third of them toxic."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 10, ROWS)
    comments = [generator.integers(5, WORDS, length) for length in lengths]
    toxic = generator.random(ROWS) < 1 / 3
    for row in np.flatnonzero(toxic):
        comments[row][generator.integers(lengths[row])] = generator.choice(OFFENSIVE)
    labels = {name: np.repeat(toxic[:, None], size, axis=1) for name, size in {"toxicity": 2, "subtypes": 6}.items()}
    labels = {name: values.astype(np.float32) for name, values in labels.items()}
    return np.concatenate(comments).astype(np.int32), np.append(0, np.cumsum(lengths)), toxic, labels


TOKENS, OFFSETS, TOXIC, LABELS = make_data()


def make_batches(seed=1, labels=LABELS, extra=(), weights=None):
    weights = np.ones(ROWS, np.float32) if weights is None else weights
    others = weights, np.zeros(ROWS, bool), (), seed, labels, extra
    return kernel.Batches(TOKENS, OFFSETS, FIT_ROWS, BATCH_SIZE, *others)


def scores_of(model, rows=HOLDOUT_ROWS, **arguments):
    return kernel.predict(model, kernel.Batches(TOKENS, OFFSETS, rows, **arguments))[:, 0]


def make_pretrained():
    return kernel.pretrained_vectors(np.eye(WORDS, dtype=np.float16), "cpu:0")


def make_schedule(epochs=EPOCHS, deadline=UNLIMITED, stop=None, kind=kernel.Schedule, steps_to_score=0):
    return kind(epochs * STEPS_OF_EPOCH, PEAK_RATE, steps_to_score, deadline, stop or threading.Event())


class Recorder(kernel.Schedule):
    """Lets each step take a second, keeps its learning rate and weights, and averages the weights by itself."""

    def on_train_begin(self, logs=None):
        self.rates, self.weights, self.average = [], [], None

    def on_train_batch_end(self, batch, logs=None):
        kernel.time.now += 1
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.weights.append([ops.convert_to_numpy(weight) for weight in self.model.trainable_weights])
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        momentum = optimizer.ema_momentum
        pairs = zip(self.average or self.weights[-1], self.weights[-1], strict=True)
        self.average = [momentum * average + (1 - momentum) * weight for average, weight in pairs]


def train(time_limit=UNLIMITED, epochs=EPOCHS, weights=None):
    """A small model that was trained at a second a step, its schedule, its losses and the orders of its epochs."""
    kernel.keras.utils.set_random_seed(1)
    model, batches, orders = kernel.build_model(make_pretrained(), WORDS, 8), make_batches(weights=weights), []
    draw, batches.draw = batches.draw, lambda: (orders.append(tuple(batches.order)), draw())
    schedule = make_schedule(epochs, kernel.time.now + time_limit, kind=Recorder)
    losses = kernel.train_model(model, batches, schedule)
    return SimpleNamespace(model=model, schedule=schedule, losses=losses, orders=orders)


@pytest.fixture(scope="module")
def trained():
    """A model with all the time, and one that is stopped in its fourth epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "time", Clock())
        return {"whole": train(), "stopped": train(time_limit=83)}


both = pytest.mark.parametrize("name", ["whole", "stopped"])


def test_learns_something_simple(trained):
    assert roc_auc_score(TOXIC[HOLDOUT_ROWS], scores_of(trained["whole"].model)) > 0.9
    assert trained["whole"].losses[-1] < trained["whole"].losses[0]


def test_does_all_steps_when_there_is_time_and_stops_when_there_is_none(trained):
    assert trained["whole"].schedule.steps == EPOCHS * STEPS_OF_EPOCH and len(trained["whole"].losses) == EPOCHS
    assert 78 < trained["stopped"].schedule.steps <= 86 and len(trained["stopped"].losses) == 4


@both
def test_each_epoch_draws_all_rows_in_an_order_of_its_own(trained, name):
    orders = trained[name].orders
    assert len({*orders}) == len(orders) >= 4
    assert all(sorted(order) == sorted(FIT_ROWS) for order in orders)


@both
def test_weights_are_their_moving_average_in_the_end(trained, name):
    def most(others):
        pairs = zip(trained[name].model.trainable_weights, others, strict=True)
        return max(abs(ops.convert_to_numpy(weight) - other).max() for weight, other in pairs)

    schedule = trained[name].schedule
    assert most(schedule.average) < min(1e-5, most(schedule.weights[-1]) / 20)


def test_the_average_looks_back_over_a_good_part_of_an_epoch_and_forgets_the_start(trained):
    """What it is for: it is smoother than the weights, and less than a thousandth of it is older than two epochs."""
    optimizer = trained["whole"].model.optimizer
    steps_back = 1 / (1 - optimizer.ema_momentum)
    assert STEPS_OF_EPOCH / 10 < steps_back < STEPS_OF_EPOCH
    assert optimizer.ema_momentum ** (2 * STEPS_OF_EPOCH) < 1e-3


@both
def test_learning_rate_rises_and_falls_to_almost_zero(trained, name):
    rates = trained[name].schedule.rates
    peak = int(np.argmax(rates))
    assert rates[peak] == pytest.approx(PEAK_RATE, rel=0.05)
    assert rates[0] < PEAK_RATE / 2 and rates[-1] < PEAK_RATE / 50
    assert rates[: peak + 1] == sorted(rates[: peak + 1]) and rates[peak:] == sorted(rates[peak:], reverse=True)


def test_a_weight_that_nothing_needs_shrinks(trained):
    """What weight decay is for. The first number of a vector is that of padding alone, which no score depends on."""
    model, weights = trained["whole"].model, trained["whole"].schedule.weights
    place = [weight.path for weight in model.trainable_weights].index("lstm_forward/lstm_cell/kernel")
    before, after = weights[0][place][0], weights[-1][place][0]
    assert (abs(after) < 0.9995 * abs(before)).all() and (abs(after) > 0.9 * abs(before)).all()


def test_same_seed_gives_the_same_scores(trained):
    assert np.array_equal(scores_of(train(time_limit=83).model), scores_of(trained["stopped"].model))


@pytest.mark.parametrize("batch_size", [1, 5, 512])
def test_predict_keeps_the_order_asked_for(trained, batch_size):
    model, rows = trained["whole"].model, HOLDOUT_ROWS[[40, 7, 49, 0, 8, 13, 21, 22]]
    comments = [TOKENS[None, OFFSETS[row] : OFFSETS[row + 1]] for row in rows]
    alone = expit([ops.convert_to_numpy(model(comment)["toxicity"])[0, 0] for comment in comments])
    scores = scores_of(model, rows, size=batch_size)
    assert np.allclose(scores, alone, rtol=0, atol=1e-5) and np.ptp(scores) > 0.3


@pytest.fixture
def half_precision():
    mixed_precision.set_dtype_policy("mixed_float16")
    yield
    mixed_precision.set_dtype_policy("float32")


SPOILT_STEP = 10


def spoilt(weight):
    """Weights of the rows, all 1 but for one row of the step with this number, counted from 0."""
    weights = np.ones(ROWS, np.float32)
    weights[make_batches().batches[SPOILT_STEP][0]] = weight
    return weights


def test_an_overflow_in_half_precision_skips_its_steps_and_spoils_nothing(half_precision):
    """The weight is small enough for the loss, but too large for its gradient: half precision ends at 65504."""
    result = train(epochs=3, weights=spoilt(3e4))
    steps = zip(result.schedule.weights, result.schedule.weights[1:], strict=False)
    unchanged = [all(map(np.array_equal, before, after)) for before, after in steps]
    skipped = np.flatnonzero(unchanged) + 1
    assert SPOILT_STEP in skipped and len(skipped) < 20  # the scale of the loss also starts too high for a few steps
    assert result.schedule.steps == 3 * STEPS_OF_EPOCH and np.isfinite(scores_of(result.model)).all()


def make_word_model(optimizer):
    """Gives tokens their trained vectors of one number, zeros at first; a label is the gradient of its vector."""
    tokens = kernel.keras.Input((None,), dtype="int32")
    embedding = kernel.DenseEmbedding(3, 1, embeddings_initializer="zeros")
    model = kernel.keras.Model(tokens, embedding(tokens))
    model.compile(optimizer, loss=lambda gradients, vectors: ops.sum(gradients * vectors))
    return model


@pytest.mark.parametrize("gradients", [[4.0, 0.001], [0.001, 4.0]])
def test_an_overflow_of_one_occurrence_of_a_word_skips_the_step(half_precision, gradients):
    """The gradient of the word's vector overflows alone, the infinite part of it before a finite one and behind it."""
    model = make_word_model(mixed_precision.LossScaleOptimizer(kernel.keras.optimizers.SGD(1.0)))
    for labels, moved in ((gradients, [0, 0, 0]), ([0.5, 0.5], [0, -1, 0])):
        model.train_on_batch(np.array([[1, 1]]), np.array(labels, np.float32)[None, :, None])
        assert np.array_equal(model.get_weights()[0].ravel(), moved)


def test_the_gradient_of_a_frequent_word_is_summed_in_full_precision(half_precision):
    """Half precision knows no 2049: a sum of ones would stay at 2048, and the scaled one overflow."""
    model = make_word_model(mixed_precision.LossScaleOptimizer(kernel.keras.optimizers.SGD(1.0)))
    model.train_on_batch(np.full((1, 3000), 1), np.ones((1, 3000, 1), np.float32))
    assert np.array_equal(model.get_weights()[0].ravel(), [0, -3000, 0])


@pytest.mark.parametrize("times", [1, 8])
def test_a_word_moves_by_its_whole_gradient_however_often_it_occurs(times):
    """Adam moves by the learning rate where a gradient stays the same (Kingma, Ba 2015, section 2.1)."""
    model = make_word_model(kernel.keras.optimizers.Adam(0.01))
    for _ in range(20):
        model.train_on_batch(np.full((1, times), 1), np.ones((1, times, 1), np.float32))
    assert model.get_weights()[0].ravel() == pytest.approx([0, -0.2, 0], abs=1e-4)


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_a_loss_that_is_no_number_ends_the_training_with_its_epoch(weight):
    result = train(weights=spoilt(weight))
    assert len(result.losses) == 1 and not np.isfinite(result.losses[-1])


def test_a_stop_ends_the_training_after_a_step():
    stop, batches = threading.Event(), make_batches()

    class Stopping(kernel.Schedule):
        def on_train_batch_end(self, batch, logs=None):
            if self.steps == 30:
                stop.set()

    schedule = make_schedule(stop=stop, kind=Stopping)
    losses = kernel.train_model(kernel.build_model(make_pretrained(), 0, 4), batches, schedule)
    assert schedule.steps == 31 and len(losses) == 2


def test_rate_factor():
    expected = {0: 0, 0.05: 0.5, 0.1: 1, 0.55: 0.5, 1: 0}
    assert {progress: kernel.rate_factor(progress) for progress in expected} == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1))
def test_rate_factor_is_continuous(progress, other):
    factor, other_factor = kernel.rate_factor(progress), kernel.rate_factor(other)
    assert 0 <= factor <= 1
    assert abs(factor - other_factor) <= 10 * abs(progress - other) + 1e-12  # never steeper than the warm-up


def pretend_to_train(clock, time_limit, seconds_of_step, steps_to_score=0, epochs=8):
    """What fit does with a Schedule, without a network: the schedule, the seconds it took and the learning rates."""
    begun, rates = clock.now, []
    schedule = make_schedule(epochs, begun + time_limit, steps_to_score=steps_to_score)
    schedule.set_model(SimpleNamespace(optimizer=SimpleNamespace(), stop_training=False))
    for step in range(epochs * STEPS_OF_EPOCH):
        schedule.on_train_batch_begin(step)
        rates.append(schedule.model.optimizer.learning_rate)
        clock.now += seconds_of_step(step)
        if schedule.model.stop_training:
            break
    return schedule, clock.now - begun, rates


@pytest.mark.parametrize("steps_to_score", [0, 20])
@pytest.mark.parametrize(
    "seconds_of_step",
    [
        lambda step: 1,
        lambda step: 1 + step / 50,
        lambda step: 1 if step < 40 else 3,  # slows down to a third
        lambda step: 40 if step == 50 else 1,  # sleeps
        lambda step: 60 if step == 0 else 1,  # to build the graph
        lambda step: 8 if step == 1 else 1,  # a batch of long comments comes first
    ],
)
def test_time_is_kept_and_used_and_the_rate_falls_to_zero(clock, seconds_of_step, steps_to_score):
    """Time is left to score, at the speed of the steps so far."""
    schedule, seconds, rates = pretend_to_train(clock, 150, seconds_of_step, steps_to_score)
    first = seconds_of_step(0)
    to_score = steps_to_score * (seconds - first) / (schedule.steps - 1)
    assert schedule.steps < schedule.planned_steps
    assert 140 <= seconds + to_score <= 150 + 3 * seconds_of_step(schedule.steps)
    assert max(rates) > 0.8 * PEAK_RATE and rates[-1] < 0.01 * PEAK_RATE


@pytest.mark.parametrize("steps", [5, 30, 90])
def test_a_training_of_few_steps_has_its_peak_and_its_end_too(clock, steps):
    _, _, rates = pretend_to_train(clock, steps, lambda step: 1)
    assert len(rates) - 1 <= steps <= len(rates) + 1
    assert max(rates) > 0.8 * PEAK_RATE and rates[-1] < PEAK_RATE / steps


def test_ends_at_once_when_the_time_is_over_before_it_starts(clock):
    schedule, _, rates = pretend_to_train(clock, -1, lambda step: 1)
    assert schedule.steps == 1 and rates == [0]


def test_the_learning_rate_is_given_rarely_and_as_an_array_which_tensorflow_does_not_keep(clock):
    """A Python number is copied to the GPU while it waits, and stays in a cache for ever (TensorFlow 2.20)."""
    _, _, rates = pretend_to_train(clock, UNLIMITED, lambda step: 1, epochs=80)
    assert len({id(rate) for rate in rates}) <= len(rates) / 10 + 100
    assert all(isinstance(rate, np.ndarray) and rate.shape == () and rate.dtype == np.float32 for rate in rates)


def test_a_training_with_all_the_time_does_as_many_steps_as_planned(clock):
    schedule, _, rates = pretend_to_train(clock, UNLIMITED, lambda step: 1)
    assert schedule.steps == schedule.planned_steps and rates[-1] == pytest.approx(0, abs=1e-12)


def make_ensemble(folder, models=2, deadline=UNLIMITED, weights=None, run="this run"):
    (folder / "models").mkdir(exist_ok=True)
    own = kernel.Settings(output_dir=folder, models=models, epochs=2, lstm_units=4, learning_rate=PEAK_RATE, seed=5)
    to_score = kernel.Batches(TOKENS, OFFSETS, np.concatenate([HOLDOUT_ROWS, TEST_ROWS]))
    batches = partial(make_batches, weights=weights)
    return kernel.Ensemble(own, deadline, WORDS // 2, batches, LABELS, to_score, IDS, {"run": run})


@pytest.fixture(scope="module")
def two_models(tmp_path_factory):
    """The folder of two models that were trained one after the other, and their ensemble."""
    folder = tmp_path_factory.mktemp("ensemble")
    ensemble = make_ensemble(folder)
    kernel.train_models(ensemble, "float32", "cpu:0", make_pretrained())
    return folder, ensemble


def test_after_each_model_there_is_a_submission_of_all_so_far(two_models):
    folder, ensemble = two_models
    submission = pd.read_csv(folder / "submission.csv")
    mean = np.mean([scores[len(HOLDOUT_ROWS) :, 0] for scores in ensemble.scores.values()], axis=0)
    assert [*ensemble.scores] == ["model_1", "model_2"] and list(submission["id"]) == list(IDS)
    assert submission["prediction"].to_numpy() == pytest.approx(mean, abs=1e-12)
    assert all(len(losses) == 2 and losses[1] < losses[0] for losses in ensemble.losses.values())
    assert (
        folder / "models" / "models.json"
    ).read_text() == '{"run": "this run", "networks": ["model_1.npz", "model_2.npz"]}'


def test_every_other_model_trains_vectors_of_frequent_words_and_the_others_have_none(two_models):
    first, second = (np.load(two_models[0] / "models" / f"model_{number}.npz") for number in (1, 2))
    assert "trained/embeddings" not in first and len(second["trained/embeddings"]) == WORDS // 2 + 2


def test_each_model_begins_with_weights_of_its_own(tmp_path, monkeypatch):
    begun = []

    def keep(model, *others):
        begun.append({name: weight.numpy() for name, weight in kernel.weights_of(model).items()})
        return [0.5]

    monkeypatch.setattr(kernel, "train_model", keep)
    kernel.train_models(make_ensemble(tmp_path, models=3), "float32", "cpu:0", make_pretrained())
    first, _, third = begun  # of the same layers, the second has one more
    kernels = [name for name in first if "kernel" in name]
    assert len(kernels) == 12 and not any(np.allclose(first[name], third[name], atol=1e-3) for name in kernels)


def test_networks_of_the_same_run_are_taken_over_and_give_the_same_submission(two_models, tmp_path, monkeypatch):
    folder, ensemble = two_models
    (tmp_path / "models").mkdir()
    for number in (1, 2):
        content = (folder / "models" / f"model_{number}.npz").read_bytes()
        (tmp_path / "models" / f"model_{number}.npz").write_bytes(content)
    monkeypatch.setattr(kernel, "train_model", lambda *arguments: pytest.fail("trained again"))
    again = make_ensemble(tmp_path)
    kernel.train_models(again, "float32", "cpu:0", make_pretrained())
    assert again.losses == ensemble.losses
    assert (tmp_path / "submission.csv").read_bytes() == (folder / "submission.csv").read_bytes()


def test_a_network_that_a_stop_cut_off_is_not_taken_over(tmp_path, monkeypatch):
    ensemble = make_ensemble(tmp_path)
    monkeypatch.setattr(kernel, "train_model", lambda *arguments: ensemble.stop.set() or [0.5])
    kernel.train_models(ensemble, "float32", "cpu:0", make_pretrained())
    assert [*ensemble.scores] == ["model_1"] and kernel.resume(tmp_path / "models" / "model_1.npz", "this run") is None


def test_a_network_that_cannot_be_written_does_not_count(tmp_path, monkeypatch):
    """models.json would name a file that is not there."""
    monkeypatch.setattr(kernel, "train_model", lambda *arguments: [0.5])
    ensemble = make_ensemble(tmp_path)
    (tmp_path / "models" / "model_1.npz.part").mkdir()
    with pytest.raises(OSError, match="model_1.npz cannot be written"):
        kernel.train_models(ensemble, "float32", "cpu:0", make_pretrained())
    assert not ensemble.scores and not (tmp_path / "submission.csv").exists()


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4 broken", "cut off", "another run"])
def test_a_network_that_is_missing_broken_or_of_another_run_is_not_taken_over(two_models, tmp_path, content):
    path, whole = tmp_path / "model_1.npz", (two_models[0] / "models" / "model_1.npz").read_bytes()
    if content is not None:
        path.write_bytes(
            content if isinstance(content, bytes) else whole[: len(whole) // 2 if content == "cut off" else None]
        )
    assert kernel.resume(path, "another run" if content == "another run" else "this run") is None


def test_models_after_the_first_learn_the_comments_to_score_with_the_scores_so_far(tmp_path, monkeypatch):
    """Holdout and test alike: not their labels, and not whom they mention, which is known here."""
    read, unknown = [], np.append(HOLDOUT_ROWS, TEST_ROWS)
    monkeypatch.setattr(kernel, "train_model", lambda model, batches, schedule: read.append(batches) or [0.5])
    ensemble = make_ensemble(tmp_path)
    ensemble.labels = {name: values.copy() for name, values in LABELS.items()}
    ensemble.labels["subtypes"][:, [0, 2]] = np.nan
    kernel.train_models(ensemble, "float32", "cpu:0", make_pretrained())
    first, second = read
    assert sorted(first.order) == sorted(FIT_ROWS) and {*second.order} == {*FIT_ROWS, *unknown}
    scores = ensemble.scores["model_1"].astype(np.float32)
    assert (second.labels["toxicity"][unknown, 0] == scores[:, 0]).all()
    assert np.isnan(second.labels["toxicity"][unknown, 1:]).all()
    assert (second.labels["subtypes"][unknown, 1] == scores[:, 2]).all()
    assert np.isnan(second.labels["subtypes"][:, [0, 2]]).all()  # nobody was asked for these
    for name, values in ensemble.labels.items():
        assert np.array_equal(values[FIT_ROWS], second.labels[name][FIT_ROWS], equal_nan=True)
        assert first.labels[name] is values


def trained_models(tmp_path, clock, monkeypatch, seconds, deadline, models=10):
    """How many models are trained where each takes so many seconds."""

    def train_one(ensemble, number, pretrained):
        clock.now += seconds(number)
        ensemble.scores[number] = ensemble.losses[number] = 0
        return True

    monkeypatch.setattr(kernel, "train_one", train_one)
    ensemble = make_ensemble(tmp_path, models, deadline)
    kernel.train_models(ensemble, "float32", "cpu:0", None)
    return len(ensemble.scores)


@pytest.mark.parametrize(
    ("deadline", "models"), [(-1, 0), (0, 1), (100, 1), (159, 1), (161, 2), (259, 2), (261, 3), (UNLIMITED, 10)]
)
def test_another_model_is_begun_while_most_of_one_still_fits(tmp_path, clock, monkeypatch, deadline, models):
    """None after the deadline: an untrained network is worse than TF-IDF."""
    assert trained_models(tmp_path, clock, monkeypatch, lambda number: 100, deadline) == models


def test_no_model_is_begun_after_a_stop(tmp_path, clock, monkeypatch):
    ensemble = make_ensemble(tmp_path)
    ensemble.stop.set()
    kernel.train_models(ensemble, "float32", "cpu:0", None)
    assert not ensemble.scores and not (tmp_path / "submission.csv").exists()


def test_a_model_that_was_cut_off_by_a_stop_counts_only_if_there_is_no_other(tmp_path, monkeypatch):
    ensemble = make_ensemble(tmp_path)
    monkeypatch.setattr(kernel, "train_model", lambda *arguments: ensemble.stop.set() or [0.5])
    for number in range(2):
        kernel.train_one(ensemble, number, make_pretrained())
    assert [*ensemble.scores] == ["model_1"]
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["model_1.npz", "models.json"]


def test_a_model_that_was_trained_when_the_stop_came_counts_and_is_taken_over(tmp_path, monkeypatch):
    ensemble, predict = make_ensemble(tmp_path), kernel.predict
    monkeypatch.setattr(kernel, "predict", lambda *arguments: ensemble.stop.set() or predict(*arguments))
    kernel.train_models(ensemble, "float32", "cpu:0", make_pretrained())
    assert kernel.resume(tmp_path / "models" / "model_1.npz", "this run") is not None


def test_a_model_that_diverges_is_told_of_and_costs_nothing(tmp_path):
    ensemble = make_ensemble(tmp_path, models=1, weights=np.full(ROWS, np.nan, np.float32))
    with pytest.warns(UserWarning, match="model_1 diverged. Try a lower KERNEL_LEARNING_RATE"):
        kernel.train_models(ensemble, "float32", "cpu:0", make_pretrained())
    assert not ensemble.scores and not [*(tmp_path / "models").iterdir()]


def test_a_model_whose_every_step_overflowed_is_trained_again_in_full_precision(tmp_path, half_precision):
    """Its moving average is all zeros, and finite."""
    ensemble = make_ensemble(tmp_path, models=1, weights=np.full(ROWS, 1e17, np.float32))
    with pytest.warns(UserWarning, match="model_1 diverged"):
        kernel.train_models(ensemble, "mixed_float16", "cpu:0", make_pretrained())
    assert [*ensemble.scores] == ["model_1"] and np.ptp(ensemble.scores["model_1"][:, 0]) > 0.01


def test_a_model_whose_loss_is_infinite_does_not_count(tmp_path, half_precision):
    """Half precision skips such a step, so the weights stay finite; but the training ended there."""
    ensemble = make_ensemble(tmp_path, models=1, weights=np.where(np.arange(ROWS) == FIT_ROWS[0], np.inf, 1))
    with pytest.warns(UserWarning, match="model_1 diverged"):
        kernel.train_models(ensemble, "mixed_float16", "cpu:0", make_pretrained())
    assert not ensemble.scores and not [*(tmp_path / "models").iterdir()]


def alive():
    """How many objects of the kinds that hold much memory there are."""
    gc.collect()
    kinds = "Functional", "Batches", "Schedule", "FuncGraph", "AdamW"
    return Counter(kind for thing in gc.get_objects() if (kind := type(thing).__name__) in kinds)


def test_nothing_of_a_finished_model_stays_alive(tmp_path):
    ensemble = make_ensemble(tmp_path)
    before = alive()
    kernel.train_models(ensemble, "float32", "cpu:0", make_pretrained())
    assert len(ensemble.scores) == 2 and alive() == before


def run_training_cell(folder, failing=()):
    """Run the cell that trains, on two devices: its variables. failing: numbers of the models that raise an error."""

    def train_one(ensemble, number, pretrained):
        if number in failing:
            raise MemoryError(f"out of memory: {number}")
        ensemble.scores[f"model_{number + 1}"] = ensemble.losses[f"model_{number + 1}"] = [0.5, 0.5]
        return True

    ensemble = make_ensemble(folder, models=4)
    names = vars(kernel) | {"train_one": train_one, "settings": ensemble.settings, "ensemble": ensemble}
    names["train_models"] = type(kernel.train_models)(kernel.train_models.__code__, names)
    kernel.run_cell(
        kernel.number_of_cell("ThreadPoolExecutor("), names | {"devices": ["cpu:0"] * 2, "pretrained": [None] * 2}
    )
    return ensemble


def test_a_worker_that_fails_is_told_of_and_the_other_goes_on(tmp_path):
    with pytest.warns(UserWarning, match="worker failed.*out of memory: 0"):
        ensemble = run_training_cell(tmp_path, failing=[0])
    assert {*ensemble.scores} == {"model_2", "model_3", "model_4"}


def test_when_no_model_was_trained_the_run_says_so_and_ends_well_with_the_submission_of_tf_idf(tmp_path):
    """With an error Kaggle would not take what it wrote."""
    run_of(tmp_path)
    with pytest.warns(UserWarning, match="No model was trained.*TF-IDF"), pytest.raises(SystemExit) as ended:
        run_training_cell(tmp_path, failing=range(4))
    assert ended.value.code == 0
    assert (tmp_path / "submission.csv").read_text() == "id,prediction\nfirst,0.25\nsecond,0.75\n"


def run_of(folder, **changed):
    """What the notebook tells runs apart by: the cell that writes the folder, with some variables changed."""
    own = kernel.Settings(output_dir=folder)
    names = vars(kernel) | {"settings": own, "models_dir": folder, "numbers": {"word": 1, "other": 2}}
    names |= {"baseline": SimpleNamespace(predict_proba=lambda texts: np.array([[0.75, 0.25], [0.25, 0.75]]))}
    names |= {"test": pd.DataFrame({"id": ["first", "second"], "comment_text": ["one", "other"]})}
    names |= {"tokens": TOKENS, "offsets": OFFSETS, "fit_rows": FIT_ROWS, "labels": LABELS, "weights": np.ones(3)}
    names |= {"embedding_matrix": np.eye(4, dtype=np.int8), "scales": np.ones(4, np.float16), "identity_terms": []}
    names |= {"train": pd.DataFrame(0.5, index=[0], columns=kernel.LABELS)}
    names |= changed
    kernel.run_cell(kernel.number_of_cell("joblib.hash("), names)
    return names["description"]["run"]


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": kernel.Settings(seed=2)},
        {"settings": kernel.Settings(time_limit=100)},
        {"train_one": kernel.rate_factor},  # the code of another cell
        {"bidirectional": kernel.rate_factor},
        {"identity_terms": [(np.array([False, True]), np.array([1]))]},
        {"numbers": {"other": 1, "word": 2}},
        {"tokens": TOKENS[::-1]},
        {"offsets": OFFSETS + 1},
        {"fit_rows": FIT_ROWS[1:]},
        {"labels": {name: values * 0.5 for name, values in LABELS.items()}},
        {"weights": np.full(3, 2.0)},
        {"embedding_matrix": 2 * np.eye(4, dtype=np.int8)},
        {"scales": np.full(4, 0.5, np.float16)},
        {"keras": SimpleNamespace(__name__="keras", __version__="4")},
    ],
    ids=lambda changed: [*changed][0],
)
def test_networks_of_another_run_are_not_taken_over(tmp_path, changed):
    assert run_of(tmp_path, **changed) != run_of(tmp_path) == run_of(tmp_path)


def test_networks_of_a_run_that_compares_shows_or_averages_otherwise_are_taken_over(tmp_path):
    others = {"compare_files": (tmp_path,), "show_comments": True, "output_dir": tmp_path, "models": 9}
    assert run_of(tmp_path, settings=kernel.Settings(**others)) == run_of(tmp_path)
