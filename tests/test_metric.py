"""Metric: the competition's metric, against the organisers' figures, the paper's definitions and
scikit-learn.
"""

import warnings
from pathlib import Path

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, pmean
from sklearn.metrics import roc_auc_score

# What the organisers' benchmark kernel gives for reference/edge_case_frame.csv: 400 rows with empty
# identities, shares of exactly 0.5 and many equal predictions. Subgroup, BPSN and BNSP AUC, rounded
# to twelve decimals.
FINAL_SCORE, OVERALL_AUC = 0.830609185889702, 0.8354103996562097
BIAS = {
    "homosexual_gay_or_lesbian": (0.773558758315, 0.8116301502, 0.823534255599),
    "muslim": (0.788170823885, 0.812160940325, 0.827308538987),
    "jewish": (0.807894736842, 0.791692073171, 0.848920863309),
    "psychiatric_or_mental_illness": (0.82641509434, 0.80450102296, 0.863564213564),
    "white": (0.835998877666, 0.88321385902, 0.785878787879),
    "male": (0.836757153338, 0.868555018927, 0.807210031348),
    "black": (0.858987090367, 0.838127013346, 0.848370927318),
    "female": (0.859020116807, 0.850649350649, 0.830658736393),
    "christian": (0.878645833333, 0.867557803468, 0.83678057554),
}
AUCS = ["subgroup_auc", "bpsn_auc", "bnsp_auc"]


@pytest.fixture
def frame():
    return pd.read_csv(Path(__file__).parent / "reference" / "edge_case_frame.csv")


def parts_of(frame):
    """toxic, scores and mentioned, as the notebook takes them."""
    toxic = frame["target"] >= 0.5
    mentioned = frame[list(BIAS)] >= 0.5
    return toxic.to_numpy(), frame["p"], mentioned


def tables(frame):
    """Bias table, DataFrame (identities, figures), and parts of the score, Series."""
    with warnings.catch_warnings():
        # what cannot be computed is NaN, and no riddle on the screen
        warnings.simplefilter("error")
        figures = kernel.model_figures(*parts_of(frame))
    return figures.drop("all"), figures.loc["all", kernel.SCORE_PARTS]


def test_organisers_score_of_the_reference_frame(frame):
    bias, score = tables(frame)
    assert score["final_score"] == pytest.approx(FINAL_SCORE, abs=1e-14)
    assert score["overall_auc"] == pytest.approx(OVERALL_AUC, abs=1e-14)
    for identity, aucs in BIAS.items():
        assert bias.loc[identity, AUCS].tolist() == pytest.approx(aucs, abs=6e-13)


def test_an_auc_that_cannot_be_computed_is_no_part_of_its_mean(frame):
    """No row mentions white, no toxic one black."""
    frame["white"] = np.nan
    frame.loc[frame["black"] >= 0.5, "target"] = 0.0
    bias, score = tables(frame)
    assert bias.loc["white"].isna().all()
    assert bias.loc["black", ["subgroup_auc", "bnsp_auc"]].isna().all()
    organisers = 0.653575388027
    assert bias.loc["black", "bpsn_auc"] == pytest.approx(organisers, abs=6e-13)
    parts = [pmean(bias[name].dropna(), -5) for name in AUCS]
    assert score[AUCS].tolist() == pytest.approx(parts, abs=1e-12)
    mean = np.mean([score["overall_auc"], *parts])
    assert score["final_score"] == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("target", [0.0, 1.0])
def test_rows_of_one_class_have_no_score(frame, target):
    bias, score = tables(frame.assign(target=target))
    assert bias[AUCS].isna().all(axis=None)
    assert score.isna().all()


def test_rows_without_any_identity_have_an_overall_auc_and_no_score(frame):
    frame[list(BIAS)] = np.nan
    _, score = tables(frame)
    assert score["overall_auc"] == pytest.approx(OVERALL_AUC, abs=1e-14)
    assert score[[*AUCS, "final_score"]].isna().all()


def test_predictions_the_wrong_way_round_score_nothing(frame):
    frame["p"] = 1 - frame["target"]
    bias, score = tables(frame)
    assert (bias[AUCS] == 0).all(axis=None)
    assert (score == 0).all()


def test_prediction_that_is_not_a_number_is_refused(frame):
    frame.loc[[3, 8], "p"] = np.nan
    with pytest.raises(ValueError, match="2 of 400 .*NaN"):
        tables(frame)


@st.composite
def comments(draw):
    """toxic, bool (rows,); scores, float (rows,), with many ties; mentioned, bool (rows,)."""
    row = st.tuples(st.booleans(), st.integers(0, 12), st.booleans())
    rows = draw(st.lists(row, min_size=1, max_size=40))
    toxic, scores, mentioned = np.array(rows).T
    return toxic.astype(bool), scores / 12, mentioned.astype(bool)


def sklearn_auc(toxic, scores):
    if toxic.all() or not toxic.any():
        return np.nan
    return roc_auc_score(toxic, scores)


def scipy_aeg(scores, subgroup, background):
    """0.5 - U(background, subgroup) / pairs, of two groups of comments of one class."""
    pairs = subgroup.sum() * background.sum()
    if pairs == 0:
        return np.nan
    return 0.5 - mannwhitneyu(scores[background], scores[subgroup]).statistic / pairs


def figures_from_outside(toxic, scores, mentioned):
    """The figures of one identity by their definitions, from scikit-learn and SciPy. Arguments as
    from comments.
    """
    bpsn = mentioned != toxic
    bnsp = mentioned == toxic
    return {
        "subgroup_auc": sklearn_auc(toxic[mentioned], scores[mentioned]),
        "bpsn_auc": sklearn_auc(toxic[bpsn], scores[bpsn]),
        "bnsp_auc": sklearn_auc(toxic[bnsp], scores[bnsp]),
        "positive_aeg": scipy_aeg(scores, mentioned & toxic, ~mentioned & toxic),
        "negative_aeg": scipy_aeg(scores, mentioned & ~toxic, ~mentioned & ~toxic),
    }


def score_from_outside(toxic, scores, mentioned):
    """What model_figures gives, but from scikit-learn and SciPy."""
    figures = {}
    for name, of in mentioned.items():
        figures[name] = figures_from_outside(toxic, scores, of.to_numpy())
    bias = pd.DataFrame(figures).T
    parts = pd.Series({"overall_auc": roc_auc_score(toxic, scores)})
    for name in AUCS:
        parts[name] = pmean(bias.loc[list(BIAS), name], -5)
    parts["final_score"] = parts.mean()
    return pd.concat([bias, parts.to_frame("all").T])


@given(comments())
def test_aucs_are_scikit_learns_and_equality_gaps_scipys_on_the_rows_of_their_definition(comments):
    toxic, scores, mentioned = comments
    ranks = kernel.dense_ranks(scores)
    overall = sklearn_auc(toxic, scores)
    assert kernel.overall_auc(toxic, ranks) == pytest.approx(overall, abs=1e-12, nan_ok=True)
    expected = figures_from_outside(*comments)
    figures = kernel.bias_metrics(toxic, ranks, mentioned)
    assert figures == pytest.approx(expected, abs=1e-12, nan_ok=True)


@settings(max_examples=50)
@given(comments(), st.sampled_from([np.exp, np.float32, lambda scores: scores / 1e6 - 7]))
def test_neither_the_order_of_the_rows_counts_nor_anything_of_the_scores_but_their_order(
    comments, rising
):
    toxic, scores, mentioned = comments
    mentioned = pd.DataFrame(dict.fromkeys(BIAS, mentioned))
    expected = kernel.model_figures(toxic, scores, mentioned)
    order = np.random.default_rng(0).permutation(len(toxic))
    changed = kernel.model_figures(toxic[order], rising(scores[order]), mentioned.iloc[order])
    pd.testing.assert_frame_equal(changed, expected, check_exact=True)


def test_bootstrap_figures_are_those_of_rows_drawn_with_replacement(frame, monkeypatch):
    """The same rows for both models."""
    monkeypatch.setattr(kernel, "RESAMPLES", 8)
    toxic, _, mentioned = parts_of(frame)
    # an identity that is not part of the score
    mentioned["other"] = frame["p"].round(3).mod(0.004) < 0.002
    scores = pd.DataFrame({"model": frame["p"], "worse": frame["p"].round(1)})
    drawn = kernel.bootstrap(toxic, scores, mentioned, seed=3)
    finals = drawn.xs("all", level="identity")["final_score"].unstack()
    assert len(finals) == finals["model"].nunique() == 8
    generator = np.random.default_rng(3)
    for draw in range(8):
        rows = generator.integers(len(toxic), size=len(toxic))
        for model in scores:
            of_rows = scores[model].to_numpy()[rows]
            expected = score_from_outside(toxic[rows], of_rows, mentioned.iloc[rows])
            found = drawn.loc[(draw, model)].loc[expected.index, expected.columns]
            assert np.allclose(found, expected, rtol=0, atol=1e-12, equal_nan=True)
