"""Training: the learning rate, the clock, the moving average, overflow, and scores that can be repeated."""

import gc
import threading
import warnings
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import mixed_precision, ops
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

ROWS, WORDS = 507, 20
FIT_ROWS, HOLDOUT_ROWS = np.arange(401), np.arange(401, ROWS)
OFFENSIVE = [2, 3, 4]  # a comment with one of these tokens is toxic
EPOCHS, BATCH_SIZE, PEAK_RATE = 10, 16, 0.01
STEPS = EPOCHS * 26
TIME_LIMIT = 83  # at a second a step it ends in the fourth epoch
UNLIMITED = 1e9


class Clock:
    """Shows the seconds that the test lets pass."""

    now = 0

    def monotonic(self):
        return self.now


@pytest.fixture(scope="module", autouse=True)
def clock():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "time", Clock())
        yield kernel.time


class Recorder(kernel.Training):
    """Lets each step take a second, keeps its learning rate, and averages the weights by itself."""

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self.rates, self.average, self.weights = [], None, []

    def on_train_batch_end(self, batch, logs=None):
        kernel.time.now += 1
        super().on_train_batch_end(batch, logs)
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.weights.append([ops.convert_to_numpy(weight) for weight in self.model.trainable_weights])
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        momentum = optimizer.ema_momentum
        pairs = zip(self.average or self.weights[-1], self.weights[-1], strict=True)
        self.average = [momentum * average + (1 - momentum) * weight for average, weight in pairs]


def make_data():
    """Token ids, offsets and labels of comments of 2 to 9 words; a third of them toxic."""
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


def scores_of(model, rows=HOLDOUT_ROWS, **arguments):
    return kernel.predict(model, kernel.LengthBuckets(TOKENS, OFFSETS, rows, **arguments))[:, 0]


def make_pretrained():
    return kernel.pretrained_vectors(np.eye(WORDS, dtype=np.float32))


def build_model():
    return kernel.build_model(make_pretrained(), WORDS, lstm_units=8)


def make_batches(rows=FIT_ROWS, weights=None, seed=1):
    weights = np.ones(ROWS, np.float32) if weights is None else weights
    return kernel.LengthBuckets(TOKENS, OFFSETS, rows, BATCH_SIZE, LABELS, weights, seed)


def train(time_limit=UNLIMITED, steps=STEPS, **arguments):
    """A small model, its Training, and the holdout scores after each epoch but the last."""
    kernel.prepare_backend(1, ["cpu:0"])
    model = build_model()
    epoch_scores, epoch_weights, epoch_orders = [], [], []
    batches = make_batches(**arguments)

    def figures(model):
        epoch_orders.append(tuple(batches.order))
        epoch_scores.append(scores_of(model))
        epoch_weights.append(([ops.convert_to_numpy(weight) for weight in model.trainable_weights], training.average))
        return {"auc": roc_auc_score(TOXIC[HOLDOUT_ROWS], epoch_scores[-1])}

    training = Recorder("Model 1", steps, PEAK_RATE, kernel.time.now + time_limit, figures_of=figures)
    kernel.train_model(model, batches, training)
    of_epochs = {"epoch_scores": epoch_scores, "epoch_weights": epoch_weights, "epoch_orders": epoch_orders}
    return SimpleNamespace(model=model, training=training, **of_epochs)


@pytest.fixture(scope="module")
def whole():
    return train()


@pytest.fixture(scope="module")
def stopped():
    return train(TIME_LIMIT)


@pytest.fixture(params=["whole", "stopped"])
def trained(request):
    return request.getfixturevalue(request.param)


def test_learns_something_simple(whole):
    assert roc_auc_score(TOXIC[HOLDOUT_ROWS], scores_of(whole.model)) > 0.9


def test_each_epoch_draws_all_rows_in_an_order_of_its_own(trained):
    assert len({*trained.epoch_orders}) == len(trained.epoch_orders) >= 2
    assert all(sorted(order) == sorted(FIT_ROWS) for order in trained.epoch_orders)


def test_figures_of_an_epoch_are_those_of_the_average(whole):
    for weights, averages in whole.epoch_weights:
        for weight, average in zip(weights, averages, strict=True):
            assert weight == pytest.approx(average, abs=1e-5)


def test_does_all_steps_when_there_is_time(whole):
    assert whole.training.steps == STEPS
    assert len(whole.training.history) == EPOCHS


def test_stops_early_when_there_is_none(stopped):
    assert 78 < stopped.training.steps < 104
    assert len(stopped.training.history) == 4  # the epoch cut short has its loss, too


def test_history_holds_the_figures_of_each_epoch_but_the_last(trained):
    history = trained.training.history
    aucs = [roc_auc_score(TOXIC[HOLDOUT_ROWS], scores) for scores in trained.epoch_scores]
    assert [figures.get("auc") for figures in history] == [*aucs, None]
    assert history[-1]["loss"] < history[0]["loss"]


def test_weights_are_their_moving_average_in_the_end(trained):
    def most(others):
        pairs = zip(trained.model.trainable_weights, others, strict=True)
        return max(abs(ops.convert_to_numpy(weight) - other).max() for weight, other in pairs)

    assert most(trained.training.average) < min(1e-5, most(trained.training.weights[-1]) / 20)


def test_learning_rate_rises_and_falls_to_almost_zero(trained):
    rates = trained.training.rates
    peak = int(np.argmax(rates))
    assert rates[peak] == pytest.approx(PEAK_RATE, rel=0.05)
    assert rates[0] < PEAK_RATE / 2 and rates[-1] < PEAK_RATE / 50
    assert rates[: peak + 1] == sorted(rates[: peak + 1]) and rates[peak:] == sorted(rates[peak:], reverse=True)


def test_same_seed_gives_the_same_scores(stopped):
    assert np.array_equal(scores_of(train(TIME_LIMIT).model), scores_of(stopped.model))


@pytest.mark.parametrize("batch_size", [1, 5, 512])
def test_predict_keeps_the_order_asked_for(whole, batch_size):
    rows = HOLDOUT_ROWS[[40, 7, 99, 0, 8, 63, 21, 22]]
    comments = [TOKENS[None, OFFSETS[row] : OFFSETS[row + 1]] for row in rows]
    alone = [ops.convert_to_numpy(whole.model(comment)["toxicity"])[0, 0] for comment in comments]
    logits = scores_of(whole.model, rows, batch_size=batch_size)
    assert np.allclose(logits, alone, rtol=0, atol=1e-4) and np.ptp(logits) > 2
    assert logits.dtype == np.float32


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


def steps_without_a_change(training):
    pairs = zip(training.weights, training.weights[1:], strict=False)
    return [
        step
        for step, (before, after) in enumerate(pairs, 1)
        if all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))
    ]


def test_an_overflow_in_half_precision_skips_its_steps_and_spoils_nothing(half_precision):
    """The weight is small enough for the loss, but too large for its gradient: half precision ends at 65504."""
    trained = train(steps=78, weights=spoilt(3e4))
    skipped = steps_without_a_change(trained.training)
    assert SPOILT_STEP in skipped and len(skipped) < 20  # the scale of the loss also starts too high for a few steps
    assert not trained.training.diverged and trained.training.steps == 78
    assert np.isfinite(scores_of(trained.model)).all()
    assert np.isfinite(np.concatenate([weight.ravel() for weight in trained.training.weights[-1]])).all()


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_a_loss_that_is_no_number_ends_the_training_at_once(weight):
    trained = train(weights=spoilt(weight))
    assert trained.training.diverged
    assert SPOILT_STEP < trained.training.steps <= SPOILT_STEP + 4


def test_an_infinite_gradient_of_a_finite_loss_ends_the_training_too(monkeypatch):
    """Of the square root at 0, for instance. What it does to the weights shows in the next loss."""

    def loss(labels, logits):
        return kernel.masked_crossentropy(labels[:, :1], logits) + ops.sqrt(ops.relu(logits[:, 0]) * 0)

    monkeypatch.setitem(kernel.LOSSES, "toxicity", loss)
    trained = train()
    assert trained.training.diverged and trained.training.steps <= 4


def test_an_interrupt_ends_the_training_after_a_step():
    interrupted = threading.Event()

    class Interrupting(kernel.Training):
        def on_train_batch_end(self, batch, logs=None):
            super().on_train_batch_end(batch, logs)
            if self.steps == 30:
                interrupted.set()

    training = Interrupting("Model 1", STEPS, PEAK_RATE, UNLIMITED, interrupted=interrupted)
    kernel.train_model(build_model(), make_batches(), training)
    assert training.steps == 31 and len(training.history) == 2


def test_a_cnn_that_diverges_has_no_logits():
    labels, holdout = {"toxicity": LABELS["toxicity"][:, :1]}, kernel.LengthBuckets(TOKENS, OFFSETS, HOLDOUT_ROWS)

    def train_cnn(weights):
        batches = kernel.LengthBuckets(TOKENS, OFFSETS, FIT_ROWS, BATCH_SIZE, labels, weights, seed=1)
        return kernel.train_cnn(make_pretrained(), batches, 2, PEAK_RATE, UNLIMITED, holdout)

    logits, rows = train_cnn(np.ones(ROWS, np.float32))
    assert np.isfinite(logits).all() and logits.shape == HOLDOUT_ROWS.shape and rows == len(FIT_ROWS)
    assert np.isnan(train_cnn(spoilt(np.inf))[0]).all()


def test_rate_factor():
    assert kernel.rate_factor(0) == 0
    assert kernel.rate_factor(0.05) == pytest.approx(0.5)
    assert kernel.rate_factor(0.1) == 1
    assert kernel.rate_factor(0.55) == pytest.approx(0.5)
    assert kernel.rate_factor(1) == pytest.approx(0, abs=1e-12)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1))
def test_rate_factor_is_continuous(progress, other):
    factor, other_factor = kernel.rate_factor(progress), kernel.rate_factor(other)
    assert 0 <= factor <= 1
    assert abs(factor - other_factor) <= 10 * abs(progress - other) + 1e-12  # never steeper than the warm-up


def pretend_to_train(clock, time_limit, seconds_of_step, seconds_of_figures=0, planned_steps=200, replan=None):
    """What fit does with a Training, ten epochs of twenty steps, without a network."""

    def figures(model):
        clock.now += seconds_of_figures
        return {}

    start, rates = clock.now, []
    training = kernel.Training("Model 1", planned_steps, PEAK_RATE, start + time_limit, replan, figures)
    model = SimpleNamespace(optimizer=SimpleNamespace(), stop_training=False)
    training.set_model(model)
    training.set_params({"epochs": 10, "steps": 20})
    training.on_train_begin()
    for epoch in range(10):
        training.on_epoch_begin(epoch)
        for step in range(20):
            training.on_train_batch_begin(step)
            rates.append(model.optimizer.learning_rate)
            clock.now += seconds_of_step(training.steps - 1)
            training.on_train_batch_end(step, {"loss": 0.5})
            if model.stop_training:
                break
        training.on_epoch_end(epoch, {"loss": 0.5})
        if model.stop_training:
            break
    return training, clock.now - start, rates


@pytest.mark.parametrize(
    "seconds_of_step, seconds_of_figures",
    [
        (lambda step: 1, 0),
        (lambda step: 1, 6),
        (lambda step: 1 + step / 50, 0),
        (lambda step: 1 if step < 40 else 3, 0),  # slows down to a third
        (lambda step: 40 if step == 50 else 1, 0),  # sleeps
        (lambda step: 60 if step == 0 else 1, 0),  # to build the graph
    ],
)
def test_time_is_kept_and_used_and_the_rate_falls_to_zero(clock, seconds_of_step, seconds_of_figures):
    training, seconds, rates = pretend_to_train(clock, 150, seconds_of_step, seconds_of_figures)
    assert training.steps < training.planned_steps
    assert 145 <= seconds <= 150 + seconds_of_figures + 2 * seconds_of_step(training.steps)
    assert max(rates) > 0.9 * PEAK_RATE and rates[-1] < 0.01 * PEAK_RATE


def test_ends_at_once_when_the_time_is_over_before_it_starts(clock):
    training, _, rates = pretend_to_train(clock, -1, lambda step: 1)
    assert training.steps == 1 and len(training.history) == 1 and rates == [0]


def test_the_plan_is_made_once_when_the_speed_is_known(clock):
    asked = []

    def replan(seconds_before, seconds_per_step):
        asked.append((seconds_before, seconds_per_step))
        return clock.now + 30

    training, seconds, _ = pretend_to_train(clock, 1000, lambda step: 2 if step else 60, replan=replan)
    assert asked == [(60, 2)]
    assert 60 + 19 * 2 + 30 <= seconds <= 60 + 19 * 2 + 34


@pytest.mark.parametrize("seconds_of_step, steps", [(2, 20), (0.5, 20), (20, 4)])
def test_the_plan_is_made_in_time_however_many_steps_there_would_be(clock, seconds_of_step, steps):
    """After twenty steps, or a quarter of the time: prediction comes after the training."""
    asked = []

    def replan(seconds_before, seconds_per_step):
        asked.append(clock.now)
        return clock.now + seconds_of_step

    start = clock.now
    training, *_ = pretend_to_train(clock, 200, lambda step: seconds_of_step, planned_steps=100_000, replan=replan)
    assert seconds_of_step < 1 or asked == [start + steps * seconds_of_step]
    assert asked[0] - start <= 100
    assert training.steps <= steps + 2


@pytest.mark.parametrize(
    "seconds, most_models, models",
    [(-30, 9, 1), (30, 9, 1), (250, 1, 1), (349, 9, 1), (351, 9, 2), (524, 9, 2), (526, 9, 3), (2500, 9, 9)],
)
def test_plan_has_one_more_model_if_all_still_get_seven_tenths(seconds, most_models, models):
    assert kernel.plan_models(seconds, 250, most_models) == models


@settings(deadline=None)
@given(st.floats(-1e3, 1e5), st.floats(1e-2, 1e5), st.integers(1, 20))
def test_planned_models_fit_into_the_seconds(seconds, seconds_of_model, most_models):
    models = kernel.plan_models(seconds, seconds_of_model, most_models)
    assert 1 <= models <= most_models
    assert models == 1 or seconds / models >= 0.699 * seconds_of_model
    assert models >= min(most_models, int(seconds // seconds_of_model))


def make_ensemble(most_models=3, time_limit=UNLIMITED, workers=1, **arguments):
    return kernel.Ensemble(
        kernel.Settings(epochs=2, lstm_units=4, learning_rate=PEAK_RATE),
        deadline=kernel.time.now + time_limit,
        most_models=most_models,
        workers=workers,
        frequent_words=WORDS // 2,
        make_batches=partial(make_batches, **arguments),
        holdout_batches=kernel.LengthBuckets(TOKENS, OFFSETS, HOLDOUT_ROWS),
        scored_batches=kernel.LengthBuckets(TOKENS, OFFSETS, np.r_[HOLDOUT_ROWS, FIT_ROWS]),
        figures_of=lambda logits: {"auc": roc_auc_score(TOXIC[HOLDOUT_ROWS], logits[: len(HOLDOUT_ROWS), 0])},
    )


def test_two_workers_share_the_models(clock):
    """A model takes 100 s; six are to be trained in 300 s and more."""
    ensemble = make_ensemble(most_models=6, time_limit=330, workers=2)
    start = clock.now
    assert [ensemble.next_number() for _ in range(2)] == [0, 1]
    assert ensemble.deadline_of(start, 100) == pytest.approx(start + 110)  # each has three
    clock.now += 110
    assert [ensemble.next_number() for _ in range(2)] == [2, 3]
    assert ensemble.deadline_of(clock.now, 150) == pytest.approx(clock.now + 110)  # slower: two still get seven tenths
    assert ensemble.deadline_of(clock.now, 200) == pytest.approx(start + 330)  # much slower: one
    assert ensemble.deadline_of(clock.now, 10) == pytest.approx(clock.now + 110)  # faster: there is one each to come
    ensemble.seconds_of_model = 200
    clock.now += 81
    assert ensemble.next_number() is None  # 139 of 200 seconds
    ensemble.seconds_of_model = 100
    assert [ensemble.next_number() for _ in range(3)] == [4, 5, None]


def test_each_worker_trains_a_first_model_whatever_the_time():
    ensemble = make_ensemble(time_limit=-1, workers=2)
    assert [ensemble.next_number() for _ in range(2)] == [0, 1]
    ensemble.seconds_of_model = 1.0
    assert ensemble.next_number() is None


@pytest.mark.parametrize("seconds_of_model, kept", [(100, 200), (280, 200), (290, 0)])
def test_a_seventh_of_the_time_is_kept_for_a_student_where_it_is_most_of_a_model(seconds_of_model, kept):
    assert kernel.plan_student(1400, seconds_of_model, most_models=2) == pytest.approx(kept)
    assert kernel.plan_student(1400, seconds_of_model, most_models=1) == 0


def test_whether_there_will_be_a_student_is_decided_once(clock):
    ensemble = make_ensemble(most_models=20, time_limit=1400)
    assert ensemble.next_number() == 0
    assert ensemble.deadline_of(clock.now, 200) == pytest.approx(clock.now + 1200 / 7)  # not in full
    clock.now += 1200 - 141  # of its 200 s a model needs seven tenths
    assert ensemble.next_number() == 1
    ensemble.deadline_of(clock.now, 300)
    assert ensemble.seconds_for_student == pytest.approx(200)
    ensemble.seconds_of_model = 200
    clock.now += 2
    assert ensemble.next_number() is None


@pytest.fixture(scope="module")
def two_models(clock):
    return train_ensemble(models=2)


@pytest.mark.parametrize("seconds_per_row, fit_rows", [(1.0, 167), (1e-3, 401), (1e9, 1)])
def test_a_student_reads_the_test_comments_and_as_many_others_as_there_is_time_for(
    two_models, seconds_per_row, fit_rows
):
    """Two models score them in a third of 1,000 s. The test comments are here those to fit."""
    ensemble = make_ensemble(most_models=2, time_limit=7000)
    ensemble.seconds_per_row = seconds_per_row
    batches = kernel.lesson(ensemble, two_models, make_pretrained(), seconds=1000)
    assert len(batches.rows) == len(FIT_ROWS) + fit_rows
    assert set(batches.rows) == set(FIT_ROWS)
    scores = np.mean([expit(model.logits[len(HOLDOUT_ROWS) :].astype(float)) for model in two_models], axis=0)
    assert batches.labels["toxicity"][FIT_ROWS, 0] == pytest.approx(scores[:, 0], abs=1e-5)
    assert batches.labels["subtypes"][FIT_ROWS] == pytest.approx(scores[:, 1:], abs=1e-5)


def test_a_student_learns_the_scores_of_the_models(two_models):
    models = [replace(model, logits=model.logits.copy()) for model in two_models]
    for model in models:  # as if they had found these scores of the test comments
        model.logits[len(HOLDOUT_ROWS) :, 0] = np.where(TOXIC[FIT_ROWS], 2, -1)
    ensemble = make_ensemble(most_models=2, time_limit=7000)
    ensemble.settings = kernel.Settings(epochs=EPOCHS, lstm_units=4, learning_rate=PEAK_RATE)
    ensemble.seconds_for_student, ensemble.seconds_per_row = 1000, 1e9
    student = kernel.train_student(ensemble, models, models[1], make_pretrained())
    assert student.file_name == "student.npz" and student.logits.shape == (ROWS, 7)
    scores, toxic = expit(student.logits[: len(HOLDOUT_ROWS), 0]), TOXIC[HOLDOUT_ROWS]
    assert np.median(scores[toxic]) == pytest.approx(expit(2), abs=0.1)
    assert np.median(scores[~toxic]) == pytest.approx(expit(-1), abs=0.1)


@pytest.fixture
def untrained(monkeypatch):
    """Nothing is learned: the weights that are kept of a model are those that it begins with."""
    monkeypatch.setattr(kernel, "train_model", lambda model, batches, training, losses: training.history.append({}))
    monkeypatch.setattr(kernel, "predict", lambda model, batches: np.zeros((len(batches.rows), 7)))


def test_a_limit_with_no_room_for_scoring_is_told_as_soon_as_the_speed_is_known(clock, untrained, monkeypatch):
    ensemble = make_ensemble(most_models=1, time_limit=100)

    def first_steps(model, batches, training, losses):
        training.history.append({})
        assert training.replan(1, 2 * BATCH_SIZE) < clock.now  # a row is scored in a second at most

    monkeypatch.setattr(kernel, "train_model", first_steps)
    with pytest.warns(
        UserWarning, match=f"KERNEL_TIME_LIMIT is {ROWS - 98} s too short: scoring may take {ROWS + 1} s"
    ):
        kernel.train_next(ensemble, make_pretrained())


def test_each_model_begins_with_weights_of_its_own(clock, untrained):
    ensemble = make_ensemble(most_models=2)
    ensemble.frequent_words = 0
    models = [kernel.train_next(ensemble, make_pretrained()) for _ in range(2)]
    kernels = [[weight for weight in model.weights if weight.ndim == 2 and np.ptp(weight) > 0.01] for model in models]
    same = [np.allclose(*pair, atol=1e-3) for pair in zip(*kernels, strict=True)]
    assert len(same) > 8 and not any(same)


def test_all_models_but_the_first_learn_the_test_comments_with_the_scores_so_far(clock, monkeypatch):
    read = []
    monkeypatch.setattr(kernel, "train_network", lambda *arguments: read.append(arguments[-1]))
    ensemble, rows = make_ensemble(), HOLDOUT_ROWS[:50]  # to fit
    labels = {"toxicity": np.zeros((ROWS, 3)), "subtypes": np.full((ROWS, 6), np.nan)}
    labels["subtypes"][:, 1] = 0.0
    ensemble.make_batches = lambda seed: kernel.LengthBuckets(TOKENS, OFFSETS, rows, 8, labels, np.ones(ROWS), seed)
    kernel.train_next(ensemble, None)
    ensemble.test_scores = of_test = np.random.default_rng(0).random((len(FIT_ROWS), 7))
    kernel.train_next(ensemble, None)
    first, second = read
    assert sorted(first.order) == sorted(rows)
    assert len(set(second.order)) == 75 and set(rows) < set(second.order) < {*rows, *FIT_ROWS}
    assert (second.labels["toxicity"][FIT_ROWS, 0] == of_test[:, 0]).all()
    assert (second.labels["subtypes"][FIT_ROWS, 1] == of_test[:, 2]).all()
    assert np.isnan(second.labels["subtypes"][:, [0, 2, 3, 4, 5]]).all()  # nobody was asked for these
    for name, values in first.labels.items():
        assert np.array_equal(values[rows], second.labels[name][rows], equal_nan=True)
        assert values is labels[name]


@pytest.mark.parametrize("number", [0, 1])
def test_a_student_begins_as_the_best_of_the_models(two_models, untrained, monkeypatch, number):
    ensemble, best = make_ensemble(most_models=2, time_limit=7000), two_models[number]
    monkeypatch.setattr(kernel, "lesson", lambda *arguments: make_batches())
    student = kernel.train_student(ensemble, two_models, best, make_pretrained())
    assert student.trained_words == best.trained_words
    for weight, weight_of_best in zip(student.weights, best.weights, strict=True):
        assert np.array_equal(weight, weight_of_best)


def test_networks_that_are_built_again_score_as_they_did(two_models):
    networks = [(model.trained_words, model.weights) for model in two_models]
    networks = kernel.networks_of(networks, make_pretrained(), 4)
    scores = kernel.predict_average(networks, make_ensemble().scored_batches)
    expected = np.mean([expit(model.logits.astype(float)) for model in two_models], axis=0)
    assert scores == pytest.approx(expected, abs=1e-5)


def test_networks_are_compared_on_the_same_rows():
    generator = np.random.default_rng(0)
    toxic, mentioned = generator.random(400) < 0.4, generator.random((400, 9)) < 0.3
    scores = pd.DataFrame({name: generator.normal(size=400) + toxic for name in ("model 1", "model 2", "model 3")})
    scores["average"] = scores.mean(axis=1)
    expected = {
        name: kernel.final_score(toxic, kernel.dense_ranks(column.to_numpy()), mentioned)
        for name, column in scores.items()
    }
    assert kernel.network_scores(toxic, scores, mentioned).to_dict() == pytest.approx(expected)
    table = kernel.compare_networks("model 2", toxic, scores, mentioned)["final_score"]
    models = [expected[f"model {number}"] for number in (1, 2, 3)]
    assert table.to_dict() == pytest.approx(
        {"best": models[1], "mean": sum(models) / 3, "average": expected["average"]}, abs=1e-12
    )
    table = kernel.compare_networks("model 2", toxic, scores.assign(student=scores["average"]), mentioned)
    assert table.at["student", "final_score"] == table.at["average", "final_score"]
    none = np.zeros((400, 9), bool)  # without identities only the overall AUC is left
    assert kernel.network_scores(toxic, scores, none)["average"] == pytest.approx(
        roc_auc_score(toxic, scores["average"])
    )


def test_no_model_is_begun_after_an_interrupt():
    ensemble = make_ensemble()
    ensemble.interrupted.set()
    assert ensemble.next_number() is None


def alive():
    """How many objects of the kinds that hold much memory there are."""
    gc.collect()
    kinds = "Functional", "LengthBuckets", "Training", "FuncGraph", "AdamW"
    return Counter(kind for thing in gc.get_objects() if (kind := type(thing).__name__) in kinds)


def train_ensemble(models):
    ensemble = make_ensemble(most_models=models)
    functions = [partial(kernel.train_next, ensemble, make_pretrained())]
    return list(kernel.side_by_side(["cpu:0"], functions, ensemble.interrupted))


def test_nothing_of_a_finished_model_stays_alive():
    before = alive()
    trained = train_ensemble(models=2)
    assert [model.number for model in trained] == [0, 1]
    assert alive() == before


def test_what_is_kept_of_a_model_is_what_it_predicted_and_learned(two_models):
    for model in two_models:
        assert model.logits.shape == (ROWS, 7)
        logits = model.logits[: len(HOLDOUT_ROWS), 0]
        assert model.history[-1]["auc"] == roc_auc_score(TOXIC[HOLDOUT_ROWS], logits)
        assert len(model.history) == 2 and model.epochs == 2


def test_a_model_that_diverges_has_no_scores():
    weights = np.full(ROWS, np.nan, np.float32)
    ensemble = make_ensemble(most_models=1, weights=weights)
    ensemble.figures_of = lambda logits: {}
    model = kernel.train_next(ensemble, make_pretrained())
    assert np.isnan(model.logits).all() and len(model.history) == 1


def test_figures_of_the_holdout():
    generator = np.random.default_rng(0)
    toxic, mentioned = generator.random(300) < 0.4, generator.random((300, 9)) < 0.2
    logits = generator.normal(size=300) + toxic
    of_labels = np.column_stack([logits, *generator.normal(size=(6, 300))])
    figures = kernel.holdout_figures(of_labels, toxic, mentioned)
    assert figures["overall_auc"] == pytest.approx(roc_auc_score(toxic, logits), abs=1e-12)
    assert figures["final_score"] == kernel.final_score(toxic, kernel.dense_ranks(logits), mentioned)
    of_labels[3] = np.nan  # training diverged
    assert np.isnan([*kernel.holdout_figures(of_labels, toxic, mentioned).values()]).all()


def test_scores_are_averaged():
    logits = np.array([[[0.0, 2.0, -700.0]], [[4.0, 2.0, -900.0]]], np.float32)
    scores = kernel.average_scores(list(logits))
    assert scores == pytest.approx(expit(logits.astype(float)).mean(axis=0), rel=1e-12)
    assert ((scores >= 0) & (scores <= 1)).all()


def trained_model(number, epochs, logit=0.0):
    logits = np.full((ROWS, 7), logit)
    return kernel.TrainedModel(number, f"model {number + 1}", 0, [np.zeros(1)], logits, epochs, [{"loss": 0.5}])


@pytest.mark.parametrize(
    "epochs, averaged",
    [([100], [0]), ([44, 45], [0, 1]), ([5, 100], [1]), ([100, 50, 49], [0, 1]), ([None, 30], [1]), ([None], [])],
)
def test_models_with_half_the_epochs_of_the_longest_trained_are_averaged(epochs, averaged):
    """Whichever ends first. None: the model diverged."""
    models = [trained_model(i, count or 100, 0.0 if count else np.nan) for i, count in enumerate(epochs)]
    for order in (models, models[::-1]):
        assert [model.number for model in kernel.worth_averaging(order)] == averaged


def run_student_cells(train_student):
    """Run the two cells of the student, whose training is train_student(): the variables after it."""
    scores = {name: np.where(TOXIC, 0.6, 0.4) + noise for name, noise in NOISE.items()}
    models = [replace(trained_model(place, 5), logits=as_logits(scores[f"model {place + 1}"])) for place in (0, 1)]
    ensemble = make_ensemble(most_models=2, time_limit=7000)
    ensemble.seconds_for_student = 1000
    variables = vars(kernel) | {
        **{"used": models, "ensemble": ensemble, "devices": ["cpu:0"], "pretrained": [None], "clock": {}},
        **{"holdout_rows": np.arange(ROWS), "holdout_toxic": TOXIC, "settings": kernel.Settings()},
        "holdout_mentioned": pd.DataFrame(False, np.arange(ROWS), kernel.IDENTITIES),
        "train_student": lambda *arguments: train_student(scores),
    }
    for text in ("student = train_student(", "network_figures = "):
        kernel.run_cell(kernel.number_of_cell(text), variables)
    return variables


NOISE = dict(zip(["model 1", "model 2", "good", "bad"], np.random.default_rng(0).normal(size=(4, ROWS)), strict=True))
NOISE = {name: noise * {"good": 0.05, "bad": 0.2}.get(name, 0.1) for name, noise in NOISE.items()}


def as_logits(scores):
    return np.repeat(logit(scores.clip(0.01, 0.99))[:, None], 7, axis=1)


@pytest.mark.parametrize("quality, folder", [("good", ["student", "all"]), ("bad", ["all"])])
def test_a_student_is_kept_if_it_is_better_than_the_best_model(quality, folder):
    variables = run_student_cells(lambda scores: replace(trained_model(2, 5), logits=as_logits(scores[quality])))
    assert [*variables["folder_scores"]] == folder
    figures = variables["network_figures"]
    assert set(figures.index) == {"student", "best", "mean", "average"}
    assert (figures["student"] > figures["best"]) == (quality == "good")
    assert figures["best"] == max(
        variables["network_scores"](TOXIC, variables["networks"][["model 1", "model 2"]], np.zeros((ROWS, 9), bool))
    )


def failing(scores):
    raise MemoryError("too large")


@pytest.mark.parametrize(
    "train_student, said", [(failing, "too large"), (lambda scores: trained_model(2, 5, np.nan), "diverged")]
)
def test_a_student_that_fails_is_told_of_and_costs_nothing(train_student, said):
    with pytest.warns(UserWarning, match=f"There is no student: .*{said}"):
        variables = run_student_cells(train_student)
    assert [*variables["folder_scores"]] == ["all"]
    assert set(variables["network_figures"].index) == {"best", "mean", "average"}


def run_training_cell(output_dir, models, failure=None):
    """Run the cell that trains the models, with these in place of trained ones, and a worker's failure at the end."""

    def side_by_side(*arguments):
        yield from models
        if failure:
            warnings.warn(failure, stacklevel=2)

    variables = vars(kernel) | {
        "settings": kernel.Settings(output_dir=output_dir),
        **{"side_by_side": side_by_side, "pretrained": [make_pretrained()], "devices": ["cpu:0"], "deadline": 0},
        **{"tokens": TOKENS, "offsets": OFFSETS, "make_batches": make_batches},
        **{"holdout_batches": None, "holdout_rows": HOLDOUT_ROWS},
        **{"test_rows": FIT_ROWS, "holdout_toxic": None, "holdout_mentioned": pd.DataFrame(columns=kernel.IDENTITIES)},
        **{"most_models": 2, "frequent_words": 0, "train_batches": make_batches(), "clock": {}},
        **{"models_dir": output_dir, "description": {}, "saved": {}},
        "test": pd.DataFrame({"id": FIT_ROWS.astype(str)}),
    }
    kernel.run_cell(kernel.number_of_cell(" in side_by_side("), variables)
    return [model.number for model in variables["used"]], pd.read_csv(output_dir / "submission.csv")["prediction"]


def test_models_that_diverge_and_workers_that_fail_are_told_of_and_cost_nothing(tmp_path):
    models = [trained_model(1, 5, np.nan), trained_model(0, 5, 0.0), trained_model(2, 5, 1.0)]
    with pytest.warns(UserWarning, match="Model 2 diverged"), pytest.warns(UserWarning, match="out of memory"):
        used, predictions = run_training_cell(tmp_path, models, failure="out of memory")
    assert used == [0, 2]
    assert predictions.to_numpy() == pytest.approx((expit(0.0) + expit(1.0)) / 2)


def fingerprint(**changed):
    """What the cell that looks for an earlier run's networks compares."""
    variables = vars(kernel) | {
        **{"settings": kernel.Settings(), "versions": {"keras": "3"}, "cells_so_far": lambda: ["code"]},
        **{"vocabulary": ["word", "other"], "tokens": TOKENS, "offsets": OFFSETS, "holdout_rows": HOLDOUT_ROWS},
        **{"train": pd.DataFrame({"id": ["1", "2"], "comment_text": ["a", "b"], "target": [0.5, 0.0]})},
        **{"pretrained": [make_pretrained()], "description": {}, "saved_models": lambda *arguments: {"model 1": None}},
    }
    kernel.run_cell(kernel.number_of_cell("fingerprint_of("), variables | changed)
    return (variables | changed)["description"]["fingerprint"]


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": kernel.Settings(seed=2)},
        {"versions": {"keras": "4"}},
        {"cells_so_far": lambda: ["other code"]},
        {"vocabulary": ["other", "word"]},
        {"tokens": TOKENS[::-1]},
        {"offsets": OFFSETS + 1},
        {"holdout_rows": HOLDOUT_ROWS[1:]},
        {"train": pd.DataFrame({"id": ["1", "2"], "comment_text": ["a", "b"], "target": [0.6, 0.0]})},
        {"pretrained": [kernel.pretrained_vectors(2 * np.eye(WORDS, dtype=np.float32))]},
    ],
    ids=lambda changed: [*changed][0],
)
def test_networks_of_another_run_are_not_taken_over(changed):
    assert fingerprint(**changed) != fingerprint() == fingerprint()


def test_when_every_model_diverges_the_run_ends_and_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="lower KERNEL_LEARNING_RATE"), pytest.warns(UserWarning, match="diverged"):
        run_training_cell(tmp_path, [trained_model(0, 5, np.nan)])
