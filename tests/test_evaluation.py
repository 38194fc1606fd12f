"""Evaluation: other models, intervals, errors and the leaderboard, against plain counting and scikit-learn."""

import re

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import precision_score, recall_score, roc_auc_score

ROWS = 600


def comments(seed=0):
    """toxic, bool (rows,); scores of two models; mentioned, of the competition's identities."""
    generator = np.random.default_rng(seed)
    toxic = generator.random(ROWS) < 0.3
    scores = pd.DataFrame({name: expit(generator.normal(size=ROWS) + 1.5 * toxic) for name in ("TF-IDF", "LSTM")})
    return toxic, scores, pd.DataFrame(generator.random((ROWS, 9)) < 0.2, columns=kernel.IDENTITIES)


def test_in_the_picture_of_gaps_orange_is_above_and_purple_below(monkeypatch):
    monkeypatch.setattr(kernel.plt, "show", lambda: None)
    toxic, mentioned = np.repeat([True, False], 4), pd.DataFrame({"black": [True, True, False, False] * 2})
    scores = pd.DataFrame({"LSTM": [0.9, 0.8, 0.7, 0.6, 0.1, 0.2, 0.3, 0.4]})  # above among toxic ones, else below
    names = vars(kernel) | {"scored_bias": kernel.bias_table(toxic, scores, mentioned)}
    kernel.run_cell(kernel.number_of_cell("EQUALITY_GAPS, ["), names)
    axis = kernel.plt.gcf().axes[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["toxic", "harmless"]
    ((above, below),) = axis.images[0].to_rgba(axis.images[0].get_array())
    assert above[0] > above[2] and below[0] < below[2]  # more red than blue, and less
    kernel.plt.close()


def write(path, rows, columns=("id", "prediction")):
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    return path


def test_predictions_of_another_model_come_in_the_order_asked_for(tmp_path):
    path = write(tmp_path / "bert.csv", [("07", 0.25), ("7", 0.5), ("9", 2.0), ("8", -1.0)])
    assert list(kernel.read_predictions(path, {"test": ["8", "07"]})["test"]) == [-1.0, 0.25]


def test_predictions_of_another_model_keep_their_order_however_close_they_are(tmp_path):
    numbers = [f"1e-{power}" for power in range(300, 45, -1)] + ["0.00000000000000012345", "0.000000000000000123451"]
    numbers += [repr(1 - 10.0**-power) for power in range(1, 16)]
    path = write(tmp_path / "bayes.csv", enumerate(numbers)).rename(tmp_path / "bayes.bz2")  # a csv all the same
    read = kernel.read_predictions(path, {"test": [*map(str, range(len(numbers)))]})["test"]
    assert list(read) == [float(number) for number in numbers] == sorted(read) and len({*read}) == len(numbers)


@pytest.mark.parametrize(("held_out", "test"), [("ab", "x"), ("a", "bx"), ("ab", "ba"), ("b", "a")])
def test_predictions_may_be_of_the_held_out_comments_of_the_test_comments_or_of_both(tmp_path, held_out, test):
    path = write(tmp_path / "bert.csv", [("a", 0.25), ("b", 0.5)])
    found = kernel.read_predictions(path, {"held-out": [*held_out], "test": [*test]})
    assert set(found) == {part for part, ids in (("held-out", held_out), ("test", test)) if set(ids) <= {"a", "b"}}
    for part, ids in (("held-out", held_out), ("test", test)):
        assert part not in found or list(found[part]) == [{"a": 0.25, "b": 0.5}[name] for name in ids]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (
            [("a", 0.1)],
            "no prediction for 1 of the 2 held-out comments, such as id b, and for 1 of the 1 test comments",
        ),
        ([("a", 0.1), ("b", np.nan)], "no prediction for 1 of the 2 held-out"),
        ([("a", 0.1), ("b", 0.2), ("a", 0.3)], "column id, row 3"),
        ([("a", np.inf), ("b", 0.2)], "column prediction, row 1 .*inf is not finite"),
        ([("a", "high"), ("b", 0.2)], "column prediction, row 1 .*'high' is not a number"),
    ],
)
def test_faults_in_the_predictions_of_another_model_are_named(tmp_path, rows, named):
    path = write(tmp_path / "bert.csv", rows)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: .*{named}"):
        kernel.read_predictions(path, {"held-out": ["a", "b"], "test": ["c"]})


def test_identities_with_enough_comments_of_both_classes():
    toxic = np.repeat([True, False], [12, 30])
    mentioned = pd.DataFrame({name: np.zeros(42, bool) for name in ("both", "few", "harmless")})
    mentioned.loc[[*range(10), *range(12, 22)], "both"] = True
    mentioned.loc[[*range(9), *range(12, 42)], "few"] = True
    mentioned.loc[[*range(12, 42)], "harmless"] = True
    assert kernel.often_mentioned(toxic, mentioned) == ["both"]


def test_intervals_hold_95_of_100_draws():
    toxic, scores, mentioned = comments()
    drawn = kernel.bootstrap(toxic, scores, mentioned, resamples=100, seed=1)
    bias = kernel.bias_table(toxic, scores, mentioned).loc["LSTM"]
    texts = kernel.with_intervals(bias[list(kernel.BIAS_METRICS)], drawn["LSTM"].drop(columns="all", level=0))
    for identity, row in texts.iterrows():
        for figure, text in row.items():
            value, low, high = map(float, re.findall(r"-?\d\.\d{4}", text))
            assert value == pytest.approx(bias.at[identity, figure], abs=5e-5)
            inside = drawn["LSTM", identity, figure].between(low - 5e-5, high + 5e-5).mean()
            assert 0.94 <= inside <= 0.96


def test_only_a_real_gap_is_more_than_chance():
    toxic, scores, mentioned = comments()
    black, white = mentioned["black"].to_numpy(), mentioned["white"].to_numpy()
    scores["LSTM"] += 0.3 * (black & ~toxic) - 0.3 * (white & toxic)
    drawn = kernel.bootstrap(toxic, scores, mentioned, resamples=50, seed=1)["LSTM"].drop(columns="all", level=0)
    sentence = kernel.more_than_chance(drawn, ["black", "white"])
    assert "harmless comments that mention black above the others" in sentence
    assert "toxic comments that mention white below the others" in sentence
    assert "toxic comments that mention black" not in sentence
    assert "white" not in kernel.more_than_chance(drawn, ["black"])
    assert kernel.more_than_chance(drawn, []) == "No identity has enough comments to be judged."
    even = drawn.xs("negative_aeg", axis=1, level=1, drop_level=False) * 0
    even = pd.concat([even, even.rename(columns={"negative_aeg": "positive_aeg"})], axis=1)
    assert "none unlike the others" in kernel.more_than_chance(even, ["black", "white"])


def test_intervals_of_any_figures_hold_95_of_100_draws():
    values, rows = np.random.default_rng(0).normal(size=500), pd.DataFrame({"x": np.arange(500)})

    def figures_of(values, rows):
        return pd.DataFrame({"mean": {"all": values.mean()}, "rows": {"all": rows["x"].nunique() / 500}})

    resampled = kernel.resample(figures_of, (values, rows), seed=1)
    low, high = resampled["all", "mean"].quantile([0.025, 0.975])
    error = values.std() / np.sqrt(500)
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.5 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.5 * error)
    assert resampled["all", "rows"].mean() == pytest.approx(1 - np.exp(-1), abs=0.02)  # with replacement
    text = kernel.with_intervals(figures_of(values, rows), resampled).at["all", "mean"]
    assert text == f"{values.mean():.4f} [{low:.4f}, {high:.4f}]"


def test_label_aucs_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    shares = pd.DataFrame(generator.integers(0, 11, (300, 2)) / 10, columns=["toxicity", "threat"])
    scores = pd.DataFrame(generator.random((300, 2)) + 0.3 * shares.to_numpy(), columns=["toxicity", "threat"])
    shares.loc[::3, "threat"] = np.nan
    figures = kernel.label_aucs(
        shares.assign(none=0.1, unknown=np.nan), scores.assign(none=scores["threat"], unknown=0)
    )
    for label in shares:
        known = shares[label].notna()
        expected = roc_auc_score(shares[label][known] >= 0.5, scores[label][known])
        assert figures.at[label, "auc"] == pytest.approx(expected, abs=1e-12)
        assert figures.at[label, "comments"] == (shares[label] >= 0.5).sum()
    assert figures.loc[["none", "unknown"], "auc"].isna().all()


def test_calibration_finds_the_curve_that_shares_of_raters_follow():
    generator = np.random.default_rng(0)
    scores = generator.beta(1, 3, 20_000).clip(1e-6, 1 - 1e-6)
    for curve in ([0.7, 1.6, -1.0], [1.0, 1.0, 0.0], [1.2, 0.3, 0.5]):
        shares = generator.binomial(10, kernel.calibrate(scores[:, None], [curve])[:, 0]) / 10
        shares[::7] = np.nan
        assert kernel.fit_calibration(scores, shares) == pytest.approx(curve, abs=0.1)


@pytest.mark.parametrize("shares", [np.zeros(50), np.ones(50), np.full(50, np.nan)], ids=["none", "all", "unknown"])
def test_labels_that_nothing_can_be_learned_from_are_not_calibrated(shares):
    assert kernel.fit_calibration(np.linspace(0.1, 0.9, 50), shares) == [1, 1, 0]


def test_a_calibration_never_falls():
    scores = np.linspace(0.01, 0.99, 99)
    assert kernel.fit_calibration(scores, 1 - scores) == [1, 1, 0]
    up_and_down = kernel.fit_calibration(scores, np.where(scores < 0.7, scores, 1 - scores))
    assert (np.diff(kernel.calibrate(scores[:, None], [up_and_down])[:, 0]) > 0).all()


def test_thresholds_flag_the_share_or_reach_the_precision_that_they_are_named_after():
    toxic, scores, _ = comments()
    thresholds = kernel.find_thresholds(toxic, scores["LSTM"].to_numpy())
    assert len(thresholds) == 6
    for name, threshold in thresholds.items():
        flagged = scores["LSTM"] >= threshold
        rule, wanted = name.split()
        if rule == "flags":
            assert flagged.mean() == pytest.approx(float(wanted.rstrip("%")) / 100, abs=1 / ROWS)
        else:
            assert toxic[flagged].mean() >= float(wanted)
            lower = scores["LSTM"][scores["LSTM"] < threshold]  # any lower one is less precise
            assert all(toxic[scores["LSTM"] >= other].mean() < float(wanted) for other in lower)
    assert np.isnan(kernel.find_thresholds(toxic, np.where(toxic, 0.2, 0.3))["precision 0.9"])


def test_what_thresholds_do_is_counted():
    toxic, scores, mentioned = comments()
    figures = kernel.flag(
        pd.Series({"low": 0.4, "high": 0.8, "none": np.nan}), toxic, scores["LSTM"].to_numpy(), mentioned
    )
    for name, threshold in (("low", 0.4), ("high", 0.8)):
        flagged = scores["LSTM"] >= threshold
        assert figures.at[name, "flagged"] == pytest.approx(flagged.mean())
        assert figures.at[name, "precision"] == pytest.approx(precision_score(toxic, flagged))
        assert figures.at[name, "found"] == pytest.approx(recall_score(toxic, flagged))
        assert figures.at[name, "false_positives"] == pytest.approx(1 - recall_score(~toxic, ~flagged))
        for identity in mentioned:
            harmless = mentioned[identity] & ~toxic
            assert figures.at[name, identity] == pytest.approx(flagged[harmless].mean())
    assert figures.loc["none", "found"] == 0 and np.isnan(figures.loc["none", "precision"])
    without = kernel.flag(pd.Series({"low": 0.4}), toxic, scores["LSTM"].to_numpy(), mentioned.assign(male=toxic))
    assert np.isnan(without.at["low", "male"])  # no harmless comment mentions it


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 9)), min_size=1, max_size=30),
    count=st.integers(1, 5),
)
def test_surest_errors_are_the_most_wrong_comments_of_the_identity(rows, count):
    toxic, mentioned, scores = map(np.array, zip(*rows, strict=True))
    errors = kernel.surest_errors(toxic, scores / 10, mentioned, count)
    for kind, of_kind, sign in (("false positives", mentioned & ~toxic, 1), ("false negatives", mentioned & toxic, -1)):
        expected = sorted(sign * scores[of_kind], reverse=True)[:count]
        assert list(sign * scores[errors[kind]]) == expected
        assert of_kind[errors[kind]].all()
        assert len(set(errors[kind])) == len(errors[kind])


def test_the_leaderboard_is_the_score_of_the_rows_that_have_labels():
    toxic, scores, mentioned = comments()
    ids = pd.Series([f"{row:03}" for row in range(ROWS)])
    submissions = scores.assign(id=ids)[["id", "LSTM", "TF-IDF"]][::-1]
    labelled = pd.concat([ids.rename("id"), pd.Series(toxic * 0.5, name="toxicity"), mentioned * 0.5], axis=1)
    labelled = labelled.replace({"male": {0.0: np.nan}})  # an empty share is no mention
    expanded = {"public": labelled[:400], "private": labelled[350:].replace({"id": {"599": "unknown"}})}
    table = kernel.leaderboard_scores(submissions, expanded)
    assert list(table.xs("LSTM", level="model")["rows"]) == [400, 249]
    for name, rows in (("public", slice(0, 400)), ("private", slice(350, ROWS - 1))):
        for model in scores:
            figures = table.loc[name, model]
            assert figures["overall_auc"] == pytest.approx(roc_auc_score(toxic[rows], scores[model][rows]))
            bias = kernel.bias_table(toxic[rows], scores[[model]][rows], mentioned[rows])
            final_score = kernel.score_table(toxic[rows], scores[[model]][rows], bias).at[model, "final_score"]
            assert figures["final_score"] == pytest.approx(final_score, abs=1e-12)


def test_labels_of_other_comments_make_no_leaderboard():
    labelled = pd.DataFrame({"id": ["a"], "toxicity": [1.0], **dict.fromkeys(kernel.IDENTITIES, 0.0)})
    submission = pd.DataFrame({"id": ["b"], "LSTM": [0.5]})
    assert kernel.leaderboard_scores(submission, {"public": labelled}).empty
    assert kernel.leaderboard_scores(submission, {}).empty
