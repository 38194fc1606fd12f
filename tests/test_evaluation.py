"""Evaluation: other models, intervals, errors and the leaderboard, against plain counting and scikit-learn."""

import re

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.metrics import roc_auc_score

ROWS = 600


def comments(seed=0):
    """toxic, bool (rows,); scores of two models; mentioned, of the competition's identities."""
    generator = np.random.default_rng(seed)
    toxic = generator.random(ROWS) < 0.3
    scores = pd.DataFrame({name: expit(generator.normal(size=ROWS) + 1.5 * toxic) for name in ("TF-IDF", "LSTM")})
    return toxic, scores, pd.DataFrame(generator.random((ROWS, 9)) < 0.2, columns=kernel.IDENTITIES)


def write(path, rows, columns=("id", "prediction")):
    pd.DataFrame(rows, columns=columns).to_csv(path, index=False)
    return path


def test_predictions_of_another_model_come_in_the_order_asked_for(tmp_path):
    path = write(tmp_path / "bert.csv", [("07", 0.25), ("7", 0.5), ("9", 2.0), ("8", -1.0)])
    assert list(kernel.read_predictions(path, ["8", "07"])) == [-1.0, 0.25]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([("a", 0.1)], "no prediction for 1 of the 2 held-out comments, such as id b"),
        ([("a", 0.1), ("b", np.nan)], "no prediction for 1 of the 2"),
        ([("a", 0.1), ("b", 0.2), ("a", 0.3)], "column id, row 3"),
        ([("a", np.inf), ("b", 0.2)], "column prediction, row 1 .*inf is not finite"),
        ([("a", "high"), ("b", 0.2)], "column prediction, row 1 .*'high' is not a number"),
    ],
)
def test_faults_in_the_predictions_of_another_model_are_named(tmp_path, rows, named):
    path = write(tmp_path / "bert.csv", rows)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: .*{named}"):
        kernel.read_predictions(path, ["a", "b"])


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


def test_false_positive_rates_are_shares_above_one_threshold():
    toxic, scores, mentioned = comments()
    rates = kernel.false_positive_rates(toxic, scores, mentioned)
    for model in scores:
        harmless = np.sort(scores[model][~toxic])
        flagged = scores[model] > np.quantile(harmless, 0.95)
        assert flagged[~toxic].mean() == pytest.approx(0.05, abs=1 / len(harmless))
        for identity in mentioned:
            rows = mentioned[identity] & ~toxic
            assert rates.at[identity, model] == pytest.approx(flagged[rows].mean(), abs=1e-12)


def test_an_identity_without_harmless_comments_has_no_false_positive_rate():
    toxic, scores, mentioned = comments()
    rates = kernel.false_positive_rates(toxic, scores, mentioned.assign(male=toxic))
    assert rates.loc["male"].isna().all()


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
    submission = pd.DataFrame({"id": ids, "prediction": scores["LSTM"]})[::-1]
    labelled = pd.concat([ids.rename("id"), pd.Series(toxic * 0.5, name="toxicity"), mentioned * 0.5], axis=1)
    labelled = labelled.replace({"male": {0.0: np.nan}})  # an empty share is no mention
    expanded = {"public": labelled[:400], "private": labelled[350:].replace({"id": {"599": "unknown"}})}
    table = kernel.leaderboard_scores(submission, expanded)
    assert list(table["rows"]) == [400, 249]
    for name, rows in (("public", slice(0, 400)), ("private", slice(350, ROWS - 1))):
        assert table.at[name, "overall_auc"] == pytest.approx(roc_auc_score(toxic[rows], scores["LSTM"][rows]))
        bias = kernel.bias_table(toxic[rows], scores[["LSTM"]][rows], mentioned[rows])
        final_score = kernel.score_table(toxic[rows], scores[["LSTM"]][rows], bias).at["LSTM", "final_score"]
        assert table.at[name, "final_score"] == pytest.approx(final_score, abs=1e-12)


def test_labels_of_other_comments_make_no_leaderboard():
    labelled = pd.DataFrame({"id": ["a"], "toxicity": [1.0], **dict.fromkeys(kernel.IDENTITIES, 0.0)})
    submission = pd.DataFrame({"id": ["b"], "prediction": [0.5]})
    assert kernel.leaderboard_scores(submission, {"public": labelled}).empty
    assert kernel.leaderboard_scores(submission, {}).empty
