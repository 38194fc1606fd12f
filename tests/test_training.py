"""Section 10, Training: the learning rate, the time limit, the moving average, and scores that can be repeated."""

from types import SimpleNamespace

import kernel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from scipy.special import expit
from sklearn.metrics import roc_auc_score

ROWS, WORDS = 500, 20
FIT_ROWS, HOLDOUT_ROWS = np.arange(400), np.arange(400, ROWS)
OFFENSIVE = [2, 3, 4]  # a comment with one of these tokens is toxic
EPOCHS, BATCH_SIZE, PEAK_RATE = 10, 16, 0.01
STEPS = EPOCHS * 25
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
        self.rates, self.average = [], None

    def on_train_batch_end(self, batch, logs=None):
        kernel.time.now += 1
        super().on_train_batch_end(batch, logs)
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.raw = [ops.convert_to_numpy(weight) for weight in self.model.trainable_weights]
        momentum = self.model.optimizer.ema_momentum
        pairs = zip(self.average or self.raw, self.raw, strict=True)
        self.average = [momentum * average + (1 - momentum) * raw for average, raw in pairs]


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
    return kernel.predict(model, TOKENS, OFFSETS, rows, **arguments)


def build_model():
    pretrained = kernel.PretrainedVectors(np.eye(WORDS, dtype=np.float32))
    return kernel.build_model(pretrained, WORDS, lstm_units=8, spatial_dropout=0.1)


def make_batches(rows=FIT_ROWS):
    return kernel.LengthBuckets(TOKENS, OFFSETS, rows, BATCH_SIZE, LABELS, np.ones(ROWS, np.float32), seed=1)


def train(time_limit):
    """A small model and its Training; steps of an epoch; the holdout scores that each epoch ended with."""
    kernel.prepare_backend(seed=1)
    model = build_model()
    epoch_scores = []

    def figures(model):
        epoch_scores.append(scores_of(model))
        return {"auc": roc_auc_score(TOXIC[HOLDOUT_ROWS], epoch_scores[-1])}

    training = Recorder(STEPS, kernel.time.now + time_limit, PEAK_RATE, figures)
    kernel.train_model(model, make_batches(), training)
    return SimpleNamespace(model=model, training=training, epoch_scores=epoch_scores)


@pytest.fixture(scope="module")
def whole():
    return train(UNLIMITED)


@pytest.fixture(scope="module")
def stopped():
    return train(TIME_LIMIT)


@pytest.fixture(params=["whole", "stopped"])
def trained(request):
    return request.getfixturevalue(request.param)


def test_learns_something_simple(whole):
    assert roc_auc_score(TOXIC[HOLDOUT_ROWS], scores_of(whole.model)) > 0.9


def test_does_all_steps_when_there_is_time(whole):
    assert whole.training.step == STEPS
    assert len(whole.training.history) == len(whole.training.epoch_seconds) == EPOCHS


def test_stops_early_when_there_is_none(stopped):
    assert 75 < stopped.training.step < 100
    assert len(stopped.training.history) == 4  # the epoch cut short has its figures, too


def test_history_holds_the_figures_of_each_epoch(trained):
    history = trained.training.history
    aucs = [roc_auc_score(TOXIC[HOLDOUT_ROWS], scores) for scores in trained.epoch_scores]
    assert [figures["auc"] for figures in history] == aucs
    assert history[-1]["loss"] < history[0]["loss"]


def test_weights_are_their_moving_average_in_the_end(trained):
    def most(others):
        pairs = zip(trained.model.trainable_weights, others, strict=True)
        return max(abs(ops.convert_to_numpy(weight) - other).max() for weight, other in pairs)

    assert most(trained.training.average) < min(1e-5, most(trained.training.raw) / 20)


def test_scores_in_the_end_are_those_of_the_last_epoch(trained):
    assert np.array_equal(scores_of(trained.model), trained.epoch_scores[-1])


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


def pretend_to_train(clock, time_limit, seconds_of_step, seconds_of_figures=0, planned_steps=200):
    """What fit does with a Training, ten epochs of twenty steps, without a network."""

    def figures(model):
        clock.now += seconds_of_figures
        return {}

    start = clock.now
    training = kernel.Training(planned_steps, start + time_limit, PEAK_RATE, figures)
    model = SimpleNamespace(optimizer=SimpleNamespace(), stop_training=False)
    training.set_model(model)
    training.set_params({"epochs": 10, "steps": 20})
    training.on_train_begin()
    for epoch in range(10):
        training.on_epoch_begin(epoch)
        for step in range(20):
            training.on_train_batch_begin(step)
            clock.now += seconds_of_step(training.step)
            training.on_train_batch_end(step, {"loss": 0.5})
            if model.stop_training:
                break
        training.on_epoch_end(epoch, {"loss": 0.5})
        if model.stop_training:
            break
    return training, clock.now - start


@pytest.mark.parametrize(
    "seconds_of_step, seconds_of_figures",
    [
        (lambda step: 1, 0),
        (lambda step: 1, 6),
        (lambda step: 1 + step / 50, 0),
        (lambda step: 1 if step < 40 else 3, 0),
        (lambda step: 60 if step == 0 else 1, 0),  # to build the graph
    ],
)
def test_time_is_kept_and_used(clock, seconds_of_step, seconds_of_figures):
    training, seconds = pretend_to_train(clock, 150, seconds_of_step, seconds_of_figures)
    assert training.step < training.planned_steps
    assert 120 <= seconds <= 150 + seconds_of_figures + 3


def test_ends_at_once_when_the_time_is_over_before_it_starts(clock):
    training, _ = pretend_to_train(clock, -1, lambda step: 1)
    assert training.step == 3 and len(training.history) == 1  # the third step is the first that is measured
    assert training.seconds_per_step == 1


def test_speed_is_not_known_after_two_steps(clock):
    training, _ = pretend_to_train(clock, 1000, lambda step: 1, planned_steps=2)
    assert training.step == 2 and training.seconds_per_step == 0


def plan(seconds, most_models):
    """A step takes two seconds, a model a hundred steps and fifty seconds besides."""
    return kernel.plan_models(seconds, 2.0, 50.0, 100, most_models)


def test_plan_trains_one_model_as_long_as_it_can():
    assert plan(250, 1) == (1, 100, 250)
    assert plan(300, 1) == (1, 100, 300)
    assert plan(240, 1) == (1, 95, 240)
    assert plan(230, 1) == (1, 90, 230)


def test_plan_has_no_model_with_too_few_steps():
    assert plan(190, 1) == (1, 70, 190)
    assert plan(189, 1) == (0, 69, 189)  # the first one is trained all the same, so it needs its steps
    assert plan(30, 1) == (0, 1, 30)
    assert plan(-30, 1) == (0, 1, -30)


def test_plan_shares_the_time_among_the_models():
    assert plan(379, 3) == (1, 100, 379)
    assert plan(380, 3) == (2, 70, 190)
    assert plan(500, 3) == (2, 100, 250)
    assert plan(570, 3) == (3, 70, 190)
    assert plan(2500, 3) == (3, 100, 2500 / 3)
    assert plan(2500, 20) == (11, 88, 2500 / 11)


@settings(deadline=None)
@given(st.floats(-1e3, 1e5), st.floats(1e-4, 10), st.floats(0, 100), st.integers(1, 10_000), st.integers(1, 20))
def test_plan_fits_into_the_seconds(seconds, per_step, besides, full_steps, most_models):
    models, steps, share = kernel.plan_models(seconds, per_step, besides, full_steps, most_models)
    assert 0 <= models <= most_models and 1 <= steps <= full_steps
    assert (steps - 1) * per_step + besides <= max(besides, share * (1 + 1e-9))
    if models:
        assert steps >= int(kernel.FEWEST_STEPS * full_steps)
        assert models * share <= seconds * (1 + 1e-9)


def test_rehearsal_measures_what_a_model_takes(clock):
    """A second a step by the Recorder's clock; a prediction takes a minute, the first step four."""

    class Slow(kernel.Training):
        def on_train_batch_end(self, batch, logs=None):
            clock.now += 1 if self.step else 4
            super().on_train_batch_end(batch, logs)

    def predict_rows(model, rows):
        clock.now += 60
        assert set(rows) == set(FIT_ROWS[:80])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "Training", Slow)
        to_build, per_step, per_row = kernel.rehearse(build_model(), make_batches(FIT_ROWS[:80]), predict_rows)
    assert (to_build, per_step, per_row) == (3, 1, 60 / 80)


def test_a_model_helps_if_the_score_of_the_average_is_no_lower():
    logits = np.array([2.0, 1.0, 0.0, -1.0])
    toxic = np.array([True, True, False, False])

    def figures_of(average):
        return {"final_score": roc_auc_score(toxic, average)}

    assert kernel.helps(logits, [logits], figures_of)
    assert not kernel.helps(-10 * logits, [logits], figures_of)
    assert kernel.helps(10 * logits, [-logits], figures_of)
    assert not kernel.helps(-10 * logits, [logits, logits], figures_of)
    assert kernel.helps(logits, [logits], lambda average: {"final_score": np.nan})  # nothing speaks against it


def test_figures_of_the_holdout():
    generator = np.random.default_rng(0)
    toxic, mentioned = generator.random(300) < 0.4, generator.random((300, 9)) < 0.2
    logits = generator.normal(size=300) + toxic
    figures = kernel.holdout_figures(logits, toxic, mentioned)
    assert figures["overall_auc"] == pytest.approx(roc_auc_score(toxic, logits), abs=1e-12)
    assert figures["final_score"] == kernel.final_score(toxic, kernel.dense_ranks(logits), mentioned)
    logits[3] = np.nan  # training diverged
    assert np.isnan([*kernel.holdout_figures(logits, toxic, mentioned).values()]).all()


def test_scores_are_averaged():
    logits = np.array([[0.0, 2.0, -700.0], [4.0, 2.0, -900.0]], np.float32)
    scores = kernel.average_scores(list(logits))
    assert scores == pytest.approx(expit(logits.astype(float)).mean(axis=0), rel=1e-12)
    assert ((scores >= 0) & (scores <= 1)).all()
