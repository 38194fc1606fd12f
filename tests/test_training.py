"""Training: the learning rate, the clock, averaged weights, and networks that follow each other."""

import gc
import re
import threading
from collections import Counter
from types import SimpleNamespace

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import roc_auc_score

ROWS, WORDS = 507, 20
FIT_ROWS, HOLDOUT_ROWS, TEST_ROWS = np.split(np.arange(ROWS), [401, 457])
OFFENSIVE = [2, 3, 4]  # a comment with one of these tokens is toxic
EPOCHS, BATCH_SIZE, PEAK_RATE = 10, 16, 0.01
STEPS_OF_EPOCH = 26
UNLIMITED = 1e9
IDS = pd.Series([f"id {row}" for row in TEST_ROWS])
RUN = "0123456789abcdef"
MAKE_TRAIN_STEP = kernel.make_train_step


class Clock:
    """Shows the seconds that the test lets pass."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        threading.Event().wait(0.005)  # others have their turn
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(kernel, "time", Clock())
    return kernel.time


def make_data():
    """Comments of 2 to 9 words; a third of them toxic; of the test comments nothing is known."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(2, 10, ROWS)
    comments = [generator.integers(5, WORDS, length) for length in lengths]
    toxic = generator.random(ROWS) < 1 / 3
    for row in np.flatnonzero(toxic):
        comments[row][generator.integers(lengths[row])] = generator.choice(OFFENSIVE)
    labels = np.repeat(toxic[:, None], 16, axis=1).astype(np.float32)
    labels[TEST_ROWS] = np.nan
    return toxic, kernel.TrainingData(
        tokens=np.concatenate(comments).astype(np.int32),
        offsets=np.append(0, np.cumsum(lengths)),
        identity_terms=[],
        rows=FIT_ROWS,
        surplus=np.zeros(ROWS, bool),
        weights=np.ones(ROWS, np.float32),
        toxicity=labels[:, :10],
        subtypes=labels[:, 10:],
        batch_size=BATCH_SIZE,
    )


TOXIC, DATA = make_data()


def make_pretrained():
    return kernel.pretrained_vectors(np.eye(WORDS, dtype=np.float16), "cpu:0")


def make_model(trained_words=WORDS):
    kernel.keras.utils.set_random_seed(1)
    return kernel.build_model(make_pretrained(), trained_words, 8)


def scores_of(model, rows=HOLDOUT_ROWS):
    return expit(kernel.predict(model, DATA, rows)[:, 0])


def with_weights(spoilt, weight):
    """DATA with another weight of some rows."""
    weights = DATA.weights.copy()
    weights[spoilt] = weight
    return kernel.replace(DATA, weights=weights)


def train(monkeypatch, seconds=UNLIMITED, epochs=EPOCHS, data=DATA, stop_at=None):
    """A small model that was trained at a second a step, and what was seen of each step."""
    model, stop, begun = make_model(), threading.Event(), kernel.time.now
    seen = {"rate": [], "momentum": [], "weights": [], "rows": []}

    def watch(model, adam):
        train_step = MAKE_TRAIN_STEP(model, adam)

        def watched(rate, momentum, *batch):
            loss = train_step(rate, momentum, *batch)
            kernel.time.now += 1
            weights = [weight.numpy() for weight in model.trainable_weights]
            for name, value in {"rate": rate, "momentum": momentum, "weights": weights}.items():
                seen[name].append(value)
            if len(seen["rate"]) == stop_at:
                stop.set()
            return loss

        return watched

    monkeypatch.setattr(kernel, "make_train_step", watch)
    schedule = kernel.Schedule(epochs * STEPS_OF_EPOCH, begun + seconds, steps_to_score=0)
    generator = np.random.default_rng(1)
    losses = kernel.train_model(model, data, generator, schedule, PEAK_RATE, stop)
    return SimpleNamespace(model=model, losses=losses, steps=schedule.steps, **seen)


def losses_of(ensemble):
    return {name: of["losses"].tolist() for name, of in ensemble.networks.items()}


@pytest.fixture(scope="module")
def trained():
    """A model with all the time, one that the clock ends in its fourth epoch, and one at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "time", Clock())
        runs = {"whole": {}, "stopped": {"seconds": 83}, "short": {"seconds": 12}}
        return {name: train(patch, **of) for name, of in runs.items()}


all_runs = pytest.mark.parametrize("name", ["whole", "stopped", "short"])


def test_learns_something_simple(trained):
    scores = scores_of(trained["whole"].model)
    assert roc_auc_score(TOXIC[HOLDOUT_ROWS], scores) > 0.9
    assert trained["whole"].losses[-1] < trained["whole"].losses[0]


def test_does_all_steps_when_there_is_time_and_stops_when_there_is_none(trained):
    steps = {name: (run.steps, len(run.losses)) for name, run in trained.items()}
    assert steps["whole"] == (EPOCHS * STEPS_OF_EPOCH, EPOCHS)
    assert 78 < steps["stopped"][0] <= 86 and steps["stopped"][1] == 4
    assert 8 < steps["short"][0] <= 15


@all_runs
def test_weights_are_their_moving_average_in_the_end(trained, name):
    """As Keras defines it: it begins with the weights after the first step."""
    run, average = trained[name], trained[name].weights[0]
    for momentum, weights in zip(run.momentum[1:], run.weights[1:], strict=True):
        pairs = zip(average, weights, strict=True)
        average = [momentum * old + (1 - momentum) * new for old, new in pairs]

    def most(others):
        pairs = zip(run.model.trainable_weights, others, strict=True)
        return max(abs(weight.numpy() - other).max() for weight, other in pairs)

    assert most(average) < min(1e-5, most(run.weights[-1]) / 20)


@all_runs
def test_the_average_forgets_the_start_and_smooths_a_good_part_of_the_training(trained, name):
    """However early the clock ends it: its memory follows the steps that there will be."""
    momentum = np.array(trained[name].momentum)
    assert np.prod(momentum[1:]) < (1e-2 if name == "short" else 1e-4)
    assert len(momentum) / 40 < 1 / (1 - momentum[-1]) <= max(2, len(momentum) / 10)


@given(st.integers(1, 200_000), st.floats(1e-3, 1))
def test_the_memory_of_the_average_is_a_share_of_the_steps_to_come(steps, progress):
    schedule = kernel.Schedule(10**6, UNLIMITED, 0, steps=steps)
    memory = 1 / (1 - schedule.momentum(progress))
    assert memory == pytest.approx(np.clip(steps / progress / 20, 2, 100))


@all_runs
def test_learning_rate_rises_and_falls_to_almost_zero(trained, name):
    rates = trained[name].rate
    peak = int(np.argmax(rates))
    assert rates[peak] == pytest.approx(PEAK_RATE, rel=0.1)
    assert rates[0] < PEAK_RATE and rates[-1] < PEAK_RATE / 50
    assert rates == sorted(rates[: peak + 1]) + sorted(rates[peak + 1 :], reverse=True)


def test_a_weight_that_nothing_needs_shrinks(trained):
    """What weight decay is for. The first number of a vector is that of padding alone."""
    run = trained["whole"]
    paths = [weight.path for weight in run.model.trainable_weights]
    place = paths.index("both_lstm/forward_lstm/lstm_cell/kernel")
    before, after = run.weights[0][place][0], run.weights[-1][place][0]
    assert (abs(after) < 0.9995 * abs(before)).all() and (abs(after) > 0.9 * abs(before)).all()


def test_same_seed_gives_the_same_scores(trained, monkeypatch):
    again = train(monkeypatch, seconds=83)
    assert np.array_equal(scores_of(again.model), scores_of(trained["stopped"].model))


def test_predict_keeps_the_order_asked_for(trained):
    model, rows = trained["whole"].model, HOLDOUT_ROWS[[40, 7, 49, 0, 8, 13, 21, 22]]
    comments = [DATA.tokens[None, DATA.offsets[row] : DATA.offsets[row + 1]] for row in rows]
    alone = [model(comment).numpy()[0] for comment in comments]
    logits = kernel.predict(model, DATA, rows)
    assert logits.dtype == np.float32 and np.allclose(logits, alone, rtol=0, atol=1e-5)
    assert np.ptp(logits[:, 0]) > 0.3


@pytest.mark.parametrize("weight", [np.nan, np.inf])
def test_a_loss_that_is_no_number_ends_the_training_with_its_step(monkeypatch, weight):
    run = train(monkeypatch, data=with_weights(FIT_ROWS[::100], weight))
    assert run.steps < STEPS_OF_EPOCH and not np.isfinite(run.losses[-1])


def test_a_stop_ends_the_training_after_its_step(monkeypatch):
    run = train(monkeypatch, stop_at=30)
    assert run.steps == 30 and len(run.losses) == 2


def test_a_training_shows_a_line_an_epoch_in_a_log(monkeypatch, capsys):
    losses = train(monkeypatch, epochs=2).losses
    lines = [f"model, epoch {epoch}: loss {loss:.4f}" for epoch, loss in enumerate(losses, 1)]
    assert capsys.readouterr().out.splitlines() == lines


def test_rate_factor():
    expected = {0: 0, 0.05: 0.5, 0.1: 1, 0.55: 0.5, 1: 0}
    found = {progress: kernel.rate_factor(progress) for progress in expected}
    assert found == pytest.approx(expected, abs=1e-12)


@given(st.floats(0, 1), st.floats(0, 1))
def test_rate_factor_is_continuous(progress, other):
    factor, other_factor = kernel.rate_factor(progress), kernel.rate_factor(other)
    assert 0 <= factor <= 1  # and never steeper than the warm-up
    assert abs(factor - other_factor) <= 10 * abs(progress - other) + 1e-12


def pretend_to_train(clock, time_limit, seconds_of_step, steps_to_score=0, steps=208):
    """What a training does with a Schedule: it, the seconds it took, and the progress by step."""
    begun, progress = clock.now, []
    schedule = kernel.Schedule(steps, begun + time_limit, steps_to_score)
    while not progress or progress[-1] < 1:
        progress.append(schedule.next_step())
        clock.now += seconds_of_step(len(progress) - 1)
    return schedule, clock.now - begun, progress


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
def test_time_is_kept_and_used_and_there_is_time_to_score(clock, seconds_of_step, steps_to_score):
    """At the speed of the steps so far."""
    schedule, seconds, progress = pretend_to_train(clock, 150, seconds_of_step, steps_to_score)
    to_score = steps_to_score * (seconds - seconds_of_step(0)) / (schedule.steps - 1)
    assert schedule.steps < schedule.planned_steps and min(np.diff(progress)) >= -0.1
    assert 140 <= seconds + to_score <= 150 + 3 * seconds_of_step(schedule.steps)


@pytest.mark.parametrize("steps", [5, 30, 90])
def test_a_training_of_few_steps_has_its_peak_and_its_end_too(clock, steps):
    _, _, progress = pretend_to_train(clock, steps, lambda step: 1)
    rates = [kernel.rate_factor(share) for share in progress]
    assert abs(len(rates) - steps) <= 1 and max(rates) > 0.8 and rates[-1] == pytest.approx(0)


def test_ends_at_once_when_the_time_is_over_before_it_starts(clock):
    schedule, _, progress = pretend_to_train(clock, -1, lambda step: 1)
    assert schedule.steps == 1 and progress == [1]


def test_at_the_competitions_size_no_limit_is_passed_by_a_training_that_is_too_slow(clock):
    """Five seconds a step, 1,100 seconds left, 277,000 comments to score with batches of 512: they
    would take 1,350 seconds. It gives up within a few steps, and has come nowhere near a network.
    """
    schedule, seconds, _ = pretend_to_train(clock, 1100, lambda step: 5, 277_000 / 512 / 2, 17_000)
    assert seconds < 120 and schedule.steps < kernel.FEWEST_STEPS


# --- the networks that count ---


def worse(scores):
    """Scores that turn a part of the pairs round."""
    return np.where(np.arange(len(scores)) % 3 > 0, scores, 1 - scores)


def make_ensemble(folder, baseline=0.5, data=DATA, run=RUN, **changed):
    (folder / "models").mkdir(exist_ok=True)
    settings = {"output_dir": folder, "models": 2, "epochs": 2, "lstm_units": 4, "seed": 5}
    mentioned = pd.DataFrame(False, range(len(HOLDOUT_ROWS)), kernel.IDENTITIES)
    return kernel.Ensemble(
        settings=kernel.Settings(**settings | {"learning_rate": PEAK_RATE} | changed),
        run=run,
        data=data,
        frequent_words=WORDS // 2,
        holdout_rows=HOLDOUT_ROWS,
        test_rows=TEST_ROWS,
        ids=IDS,
        toxic=TOXIC[HOLDOUT_ROWS],
        mentioned=mentioned,
        decisive="overall_auc",
        baseline_scores=np.full(len(HOLDOUT_ROWS) + len(TEST_ROWS), baseline),
        submitted="TF-IDF",
    )


def train_networks(ensemble, deadline=UNLIMITED, precision="float32", pretrained=None):
    numbers = iter(range(ensemble.settings.models))
    pretrained = pretrained or make_pretrained()
    kernel.train_networks(ensemble, numbers, deadline, precision, "cpu:0", pretrained)


@pytest.fixture(scope="module")
def two_networks(tmp_path_factory):
    """The folder of two networks that were trained one after the other, and their ensemble."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "time", Clock())
        ensemble = make_ensemble(tmp_path_factory.mktemp("ensemble"))
        train_networks(ensemble)
    return ensemble.settings.output_dir, ensemble


def submission_in(folder):
    submission = pd.read_csv(folder / "submission.csv")
    assert list(submission["id"]) == list(IDS)
    return submission["prediction"].to_numpy()


def test_after_each_network_there_is_a_submission_of_all_so_far(two_networks):
    folder, ensemble = two_networks
    of_test = [scores[len(HOLDOUT_ROWS) :, 0] for scores in ensemble.scores().values()]
    assert [*ensemble.networks] == ["model_1", "model_2"] and ensemble.submitted == "LSTM"
    assert submission_in(folder) == pytest.approx(np.mean(of_test, axis=0), abs=1e-12)
    assert all(len(of) == 2 and of[1] < of[0] for of in losses_of(ensemble).values())


def test_every_other_network_trains_vectors_of_frequent_words(two_networks):
    paths = (kernel.array_path(two_networks[0] / "models", f"model_{n}", RUN) for n in (1, 2))
    first, second = map(np.load, paths)
    assert "trained/embeddings" not in first
    assert len(second["trained/embeddings"]) == WORDS // 2 + 2


def learned_scores(ensemble, toxic_first):
    """Arrays of a network whose scores rank all toxic comments first, or some others."""
    scores = np.where(TOXIC, 0.8, 0.3)[np.append(HOLDOUT_ROWS, TEST_ROWS)]
    scores = scores if toxic_first else worse(scores)
    return {"logits": np.repeat(kernel.logit(scores)[:, None], 7, axis=1), "losses": np.ones(2)}


def test_the_holdout_decides_whose_scores_are_submitted(tmp_path):
    """Those of TF-IDF until the average is better there; and again where it is no longer."""
    ensemble = make_ensemble(tmp_path)
    order = np.append(HOLDOUT_ROWS, TEST_ROWS)
    ensemble.baseline_scores = 0.1 + 0.5 * (TOXIC & (np.arange(ROWS) % 9 > 0))[order]
    ensemble.add({"model_1": learned_scores(ensemble, False)})
    assert ensemble.submitted == "TF-IDF" and [*ensemble.networks] == ["model_1"]
    assert (submission_in(tmp_path) == ensemble.baseline_scores[len(HOLDOUT_ROWS) :]).all()
    ensemble.add(
        {"model_2": learned_scores(ensemble, True), "model_3": learned_scores(ensemble, True)}
    )
    assert ensemble.submitted == "LSTM"
    assert submission_in(tmp_path) == pytest.approx(ensemble.mean_scores()[len(HOLDOUT_ROWS) :, 0])


def test_a_network_that_comes_after_the_stop_does_not_count(tmp_path):
    ensemble = make_ensemble(tmp_path)
    ensemble.stop.set()
    ensemble.count("model_1", learned_scores(ensemble, True))
    assert not ensemble.networks and not [*tmp_path.rglob("*.*")]


@pytest.mark.parametrize("name", [f"models/model_1_{RUN[:8]}.npz.part", "submission.csv.part"])
def test_what_cannot_be_written_does_not_count(tmp_path, name):
    """A report would tell of an average that the submission is not."""
    ensemble = make_ensemble(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(OSError, match="cannot be written"):
        ensemble.count("model_1", learned_scores(ensemble, True))
    assert not ensemble.networks and ensemble.submitted == "TF-IDF"


# --- build, learn, accept ---


def weights_at_first(seed, number, tmp_path):
    model, _ = kernel.build(make_ensemble(tmp_path, seed=seed), number, make_pretrained())
    kernels = (weight.numpy() for weight in model.trainable_weights if "kernel" in weight.path)
    return np.concatenate([of.ravel() for of in kernels])


def test_each_network_of_each_run_begins_with_weights_of_its_own(tmp_path):
    """Those of neighbouring seeds, too: the second network of one is not the first of the next."""
    first = weights_at_first(5, 0, tmp_path)
    assert np.array_equal(first, weights_at_first(5, 0, tmp_path))
    others = [weights_at_first(*of, tmp_path) for of in ((5, 2), (6, 0), (4, 1), (4, 2), (3, 2))]
    sizes = [other[: len(first)] for other in others]
    assert not any(np.isclose(first[: len(of)], of, atol=1e-3).mean() > 0.5 for of in sizes)


def test_networks_after_the_first_learn_the_test_comments_and_never_the_holdout(tmp_path):
    """With the mean of the scores so far; whom they mention stays unknown, and so does a subtype
    that nobody was asked about.
    """
    subtypes = DATA.subtypes.copy()
    subtypes[:, [0, 2]] = np.nan
    ensemble = make_ensemble(tmp_path, data=kernel.replace(DATA, subtypes=subtypes))
    _, first = kernel.build(ensemble, 0, make_pretrained())
    ensemble.add(
        {name: learned_scores(ensemble, name == "model_1") for name in ("model_1", "model_2")}
    )
    _, later = kernel.build(ensemble, 2, make_pretrained())
    drawn = [{*data.draw_rows(np.random.default_rng(0))} for data in (first, later)]
    assert drawn == [{*FIT_ROWS}, {*FIT_ROWS, *TEST_ROWS}]
    scores = ensemble.mean_scores()[len(HOLDOUT_ROWS) :].astype(np.float32)
    assert (later.toxicity[TEST_ROWS, 0] == scores[:, 0]).all()
    assert np.isnan(later.toxicity[TEST_ROWS, 1:]).all()
    assert (later.subtypes[TEST_ROWS, 1] == scores[:, 2]).all()
    assert np.isnan(later.subtypes[:, [0, 2]]).all()
    known = np.append(FIT_ROWS, HOLDOUT_ROWS)
    assert np.array_equal(later.toxicity[known], DATA.toxicity[known])
    assert np.isnan(DATA.toxicity[TEST_ROWS]).all(), "the data of the others stays"


def learn(tmp_path, deadline=UNLIMITED, data=DATA, **settings):
    ensemble = make_ensemble(tmp_path, data=data, **settings)
    model, data = kernel.build(ensemble, 0, make_pretrained())
    return kernel.learn(ensemble, 0, deadline, model, data)


def train_for(steps):
    """A train_model that takes so many steps without a network."""

    def train_model(model, data, generator, schedule, *others):
        schedule.steps = steps
        return [0.5, 0.25]

    return train_model


@pytest.mark.parametrize("steps, counts", [(1, False), (25, False), (26, True), (52, True)])
def test_a_network_that_was_ended_before_an_epoch_does_not_count(
    tmp_path, monkeypatch, steps, counts
):
    monkeypatch.setattr(kernel, "train_model", train_for(steps))
    if counts:
        assert learn(tmp_path) == [0.5, 0.25]
    else:
        with pytest.warns(UserWarning, match=f"model_1 does not count: {steps} steps are too few"):
            assert learn(tmp_path) is None


@pytest.mark.parametrize("steps, counts", [(299, False), (300, True)])
def test_of_a_long_epoch_300_steps_are_enough(tmp_path, monkeypatch, recwarn, steps, counts):
    monkeypatch.setattr(kernel, "train_model", train_for(steps))
    assert (learn(tmp_path, data=kernel.replace(DATA, batch_size=1)) is not None) == counts


def test_a_network_that_was_told_to_stop_does_not_count(tmp_path, monkeypatch, recwarn):
    """However far it came: its learning rate has not fallen."""
    ensemble = make_ensemble(tmp_path)
    model, data = kernel.build(ensemble, 0, make_pretrained())
    monkeypatch.setattr(kernel, "train_model", lambda *_: ensemble.stop.set() or [0.5])
    assert kernel.learn(ensemble, 0, UNLIMITED, model, data) is None and not recwarn


def test_a_deadline_leaves_time_to_score(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        kernel, "Schedule", lambda *of: seen.append(of) or SimpleNamespace(steps=99)
    )
    monkeypatch.setattr(kernel, "train_model", lambda *_: [0.5])
    learn(tmp_path, deadline=77)
    rows = len(HOLDOUT_ROWS) + len(TEST_ROWS)
    assert seen == [(2 * STEPS_OF_EPOCH, 77, pytest.approx(rows / BATCH_SIZE / 2))]


@pytest.mark.parametrize("fault", [np.nan, np.inf, 0])
def test_scores_that_are_no_numbers_or_all_the_same_are_not_accepted(tmp_path, fault):
    """The same: each step may have been skipped, and the moving average be all zeros."""
    logits = np.ones((9, 7)) * fault
    with pytest.raises(FloatingPointError):
        kernel.accept(make_ensemble(tmp_path), make_model(), [0.5], logits)


def test_a_network_that_diverges_is_told_of_and_costs_nothing(tmp_path):
    ensemble = make_ensemble(tmp_path, models=1, data=with_weights(FIT_ROWS, np.nan))
    with pytest.warns(UserWarning, match="model_1 diverged.*Try a lower KERNEL_LEARNING_RATE"):
        train_networks(ensemble)
    assert not ensemble.networks and not [*tmp_path.rglob("*.*")]


def test_one_that_diverges_in_half_precision_is_trained_again_in_full_and_only_that_one(
    tmp_path, monkeypatch
):
    policies = []

    def train_network(ensemble, number, *others):
        policies.append((number, kernel.keras.config.dtype_policy().name))
        if policies[-1] == (1, "mixed_float16"):
            raise FloatingPointError("scores that are all the same")

    monkeypatch.setattr(kernel, "train_network", train_network)
    with pytest.warns(UserWarning, match="model_2 diverged: scores"):
        train_networks(make_ensemble(tmp_path, models=3), precision="mixed_float16")
    kernel.keras.config.set_dtype_policy("float32")
    again = [(1, "float32"), (2, "mixed_float16")]
    assert policies == [(0, "mixed_float16"), (1, "mixed_float16"), *again]


def alive():
    """How many objects of the kinds that hold much memory there are."""
    gc.collect()
    kinds = "Functional", "TrainingData", "FuncGraph", "AdamW"
    return Counter(kind for thing in gc.get_objects() if (kind := type(thing).__name__) in kinds)


def test_nothing_of_a_finished_network_stays_alive(tmp_path):
    ensemble, pretrained = make_ensemble(tmp_path), make_pretrained()
    before = alive()
    train_networks(ensemble, pretrained=pretrained)
    assert len(ensemble.networks) == 2 and alive() == before


# --- one after the other, and side by side ---


def trained_networks(tmp_path, clock, monkeypatch, seconds, deadline):
    """How many networks are trained where each takes so many seconds."""
    trained = []

    def train_network(ensemble, number, *others):
        clock.now += seconds
        trained.append(number)

    monkeypatch.setattr(kernel, "train_network", train_network)
    train_networks(make_ensemble(tmp_path, models=10), deadline)
    return len(trained)


LIMITS = [(-1, 0), (0, 1), (100, 1), (159, 1), (161, 2), (259, 2), (261, 3), (UNLIMITED, 10)]


@pytest.mark.parametrize(("deadline", "networks"), LIMITS)
def test_another_is_begun_while_most_of_one_still_fits(
    tmp_path, clock, monkeypatch, deadline, networks
):
    assert trained_networks(tmp_path, clock, monkeypatch, 100, deadline) == networks


def run_training_cell(folder, train_network, devices=("cpu:0", "cpu:0"), **changed):
    """Run the cells that train, and that say what came of it: their variables."""
    ensemble = make_ensemble(folder, models=4)
    names = vars(kernel) | {"train_network": train_network, "ensemble": ensemble, "end": 20.0}
    names["train_networks"] = type(kernel.train_networks)(kernel.train_networks.__code__, names)
    names |= {
        "settings": ensemble.settings,
        "devices": devices,
        "pretrained": [None] * len(devices),
    }
    names |= {"taken_over": {}, "submitted": "TF-IDF", "time_limit": 20.0} | changed
    for text in ("threading.Thread(", "No network counts"):
        kernel.run_cell(kernel.number_of_cell(text), names)
    return names


def count(ensemble, number, *others):
    """A train_network that takes no time."""
    ensemble.count(f"model_{number + 1}", learned_scores(ensemble, True))


def test_a_worker_that_fails_is_told_of_and_the_other_goes_on(tmp_path):
    def fail_once(ensemble, number, *others):
        if number == 0:
            raise MemoryError("out of memory")
        count(ensemble, number)

    with pytest.warns(UserWarning, match="worker failed.*out of memory"):
        ensemble = run_training_cell(tmp_path, fail_once)["ensemble"]
    assert {*ensemble.networks} == {"model_2", "model_3", "model_4"}


def test_networks_that_are_taken_over_are_not_trained_again(tmp_path):
    ensemble = run_training_cell(tmp_path, count, taken_over=["model_1", "model_3"])["ensemble"]
    assert {*ensemble.networks} == {"model_2", "model_4"}


def test_a_worker_that_hangs_is_left_behind_within_the_limit_and_counts_no_more(tmp_path):
    released, ended = threading.Event(), threading.Event()

    def hang(ensemble, number, *others):
        if number == 1:
            released.wait(60)
            kernel.time.now = 0.0  # there seems to be time
        count(ensemble, number)
        if number == 1:
            ended.set()

    names = run_training_cell(tmp_path, hang)
    ensemble = names["ensemble"]
    assert kernel.time.now < 20 and names["stopped_because"] == "time limit"
    assert {*ensemble.networks} == {"model_1", "model_3", "model_4"}
    released.set()
    assert ended.wait(60)
    assert {*ensemble.networks} == {"model_1", "model_3", "model_4"}
    assert len([*(tmp_path / "models").iterdir()]) == 3


def test_jupyters_stop_button_ends_the_training_at_once_and_not_the_run(tmp_path, monkeypatch):
    """The network in training does not count, and nobody waits for it."""
    released = threading.Event()

    def press_stop(seconds):
        if "model_1" in names_of_those_that_count:
            raise KeyboardInterrupt

    names_of_those_that_count = []

    def train(ensemble, number, *others):
        if number > 0:
            assert released.wait(60)
        count(ensemble, number)
        names_of_those_that_count.extend(ensemble.networks)

    monkeypatch.setattr(kernel.time, "sleep", press_stop)
    names = run_training_cell(tmp_path, train, devices=["cpu:0"])
    assert names["stopped_because"] == "interrupted"
    assert [*names["ensemble"].networks] == ["model_1"]
    released.set()


@pytest.mark.parametrize("submitted", ["TF-IDF", "an earlier run"])
def test_when_no_network_counts_the_run_says_so_and_ends_well(tmp_path, submitted):
    """With an error Kaggle would not take what it wrote."""
    (tmp_path / "submission.csv").write_text("what was there")
    with pytest.warns(UserWarning) as told, pytest.raises(SystemExit) as ended:
        run_training_cell(tmp_path, lambda *_: None, submitted=submitted)
    assert ended.value.code == 0
    said = f"No network counts.*submission.csv holds the scores of {submitted}"
    assert any(re.search(said, str(warning.message)) for warning in told)
    assert (tmp_path / "submission.csv").read_text() == "what was there"


# --- the same command again ---


def test_networks_of_the_same_run_are_taken_over_and_give_the_same_submission(
    two_networks, tmp_path
):
    folder, ensemble = two_networks
    again = make_ensemble(tmp_path)
    again.add(kernel.saved_networks(folder / "models", RUN, 9))
    assert losses_of(again) == losses_of(ensemble) and [*again.networks] == ["model_1", "model_2"]
    assert (tmp_path / "submission.csv").read_bytes() == (folder / "submission.csv").read_bytes()


def test_of_the_saved_networks_as_many_are_taken_over_as_are_asked_for_in_their_order(tmp_path):
    arrays = {"run": RUN, "losses": [0.5], "logits": [[0.5]]}
    for number in (10, 2, 1):
        np.savez(kernel.array_path(tmp_path, f"model_{number}", RUN), **arrays)
    assert [*kernel.saved_networks(tmp_path, RUN, 10)] == ["model_1", "model_2", "model_10"]
    assert [*kernel.saved_networks(tmp_path, RUN, 9)] == ["model_1", "model_2"]


@pytest.mark.parametrize("content", [None, b"", b"PK\3\4 broken", "cut off", "another run"])
def test_a_network_that_is_missing_broken_or_of_another_run_is_not_taken_over(
    two_networks, tmp_path, content
):
    whole = kernel.array_path(two_networks[0] / "models", "model_1", RUN).read_bytes()
    run = RUN[:8] + "00000000" if content == "another run" else RUN
    parts = {"cut off": whole[: len(whole) // 2], "another run": whole}
    if content is not None:
        kernel.array_path(tmp_path, "model_1", run).write_bytes(parts.get(content, content))
    assert kernel.saved_networks(tmp_path, run, 2) == {}


def run_of(folder, **changed):
    """What the notebook tells runs apart by: of the cell that finds it, some variables changed."""
    (folder / "models").mkdir(exist_ok=True)
    names = vars(kernel) | {"settings": kernel.Settings(), "models_dir": folder / "models"}
    names |= {"data": DATA, "numbers": {"word": 1, "other": 2}, "scales": np.ones(4, np.float16)}
    names |= {"embedding_matrix": np.eye(4, dtype=np.int8)} | changed
    kernel.run_cell(kernel.number_of_cell("joblib.hash("), names)
    return names["run"]


CHANGED = [
    {"settings": kernel.Settings(seed=2)},
    {"settings": kernel.Settings(time_limit=100)},
    {"learn": kernel.rate_factor},  # the code of another cell
    {"build_model": kernel.auc},
    {"numbers": {"other": 1, "word": 2}},
    {"embedding_matrix": 2 * np.eye(4, dtype=np.int8)},
    {"scales": np.full(4, 0.5, np.float16)},
    {"keras": SimpleNamespace(__name__="keras", __version__="4")},
]
CHANGED += [
    {"data": kernel.replace(DATA, **of)}
    for of in (
        {"identity_terms": [(np.array([False, True]), np.array([1]))]},
        {"tokens": DATA.tokens[::-1]},
        {"offsets": DATA.offsets + 1},
        {"rows": FIT_ROWS[1:]},
        {"toxicity": DATA.toxicity * 0.5},
        {"subtypes": DATA.subtypes * 0.5},
        {"weights": np.full(3, 2.0)},
        {"surplus": ~DATA.surplus},
        {"batch_size": 8},
    )
]


@pytest.mark.parametrize("changed", CHANGED, ids=lambda changed: [*changed][0])
def test_networks_of_another_run_are_not_taken_over(tmp_path, changed):
    assert run_of(tmp_path, **changed) != run_of(tmp_path) == run_of(tmp_path)


def test_networks_of_a_run_that_compares_shows_or_averages_otherwise_are_taken_over(tmp_path):
    others = {
        "compare_files": (tmp_path,),
        "show_comments": True,
        "output_dir": tmp_path,
        "models": 9,
    }
    assert run_of(tmp_path, settings=kernel.Settings(**others)) == run_of(tmp_path)


def test_the_vectors_are_written_once_for_a_run(tmp_path):
    run = run_of(tmp_path)
    path = kernel.array_path(tmp_path / "models", "vectors", run)
    assert np.array_equal(np.load(path), np.eye(4))
    before = path.stat().st_mtime_ns
    assert run_of(tmp_path) == run and path.stat().st_mtime_ns == before
