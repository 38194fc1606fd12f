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
FINAL_SCORE = 0.830609185889702
OVERALL_AUC = 0.8354103996562097
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


def figures_of(*parts):
    """What the notebook gives; what cannot be computed is NaN, and no riddle on the screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kernel.model_figures(*parts)


def test_organisers_score_of_the_reference_frame(frame):
    figures = figures_of(*parts_of(frame))
    score = figures.loc["all", ["final_score", "overall_auc"]].tolist()
    assert score == pytest.approx([FINAL_SCORE, OVERALL_AUC], abs=1e-14)
    for identity, aucs in BIAS.items():
        assert figures.loc[identity, AUCS].tolist() == pytest.approx(aucs, abs=6e-13)


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
    """The figures of one identity by their definitions, from scikit-learn and SciPy."""
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
    """What model_figures gives, but from scikit-learn and SciPy: an AUC that cannot be computed is
    no part of its mean.
    """
    figures = {}
    for name, of in mentioned.items():
        figures[name] = figures_from_outside(toxic, scores, of.to_numpy())
    bias = pd.DataFrame(figures).T
    parts = pd.Series({"overall_auc": sklearn_auc(toxic, scores)})
    for name in AUCS:
        parts[name] = pmean(bias.loc[list(BIAS), name].dropna(), -5)
    parts["final_score"] = parts.mean(skipna=False)
    return pd.concat([bias, parts.to_frame("all").T])


def assert_same(figures, expected):
    figures = figures.loc[expected.index, expected.columns]
    assert np.allclose(figures, expected, rtol=0, atol=1e-12, equal_nan=True)


ROWS = st.tuples(st.booleans(), st.integers(0, 12), st.lists(st.booleans(), min_size=9, max_size=9))


@st.composite
def comments(draw):
    """toxic, bool (rows,); scores, float (rows,), with many ties; mentioned, DataFrame."""
    toxic, scores, mentioned = zip(*draw(st.lists(ROWS, min_size=1, max_size=40)), strict=True)
    return np.array(toxic), np.array(scores) / 12, pd.DataFrame(mentioned, columns=[*BIAS])


@pytest.mark.filterwarnings("ignore:One or more sample arguments")
@given(comments())
def test_figures_are_scikit_learns_and_scipys_on_the_rows_of_their_definition(comments):
    assert_same(figures_of(*comments), score_from_outside(*comments))


def test_an_auc_that_cannot_be_computed_is_no_part_of_the_score(frame):
    """No row mentions white, no toxic one black."""
    frame["white"] = np.nan
    frame.loc[frame["black"] >= 0.5, "target"] = 0.0
    toxic, scores, mentioned = parts_of(frame)
    figures = figures_of(toxic, scores, mentioned)
    assert_same(figures, score_from_outside(toxic, scores.to_numpy(), mentioned))
    assert figures["final_score"].notna().any() and figures["bnsp_auc"].isna().sum() == 2


def test_prediction_that_is_not_a_number_is_refused(frame):
    frame.loc[[3, 8], "p"] = np.nan
    with pytest.raises(ValueError, match="2 of 400 .*NaN"):
        kernel.model_figures(*parts_of(frame))


@settings(max_examples=50)
@given(comments(), st.sampled_from([np.exp, np.float32, lambda scores: scores / 1e6 - 7]))
def test_neither_the_order_of_the_rows_counts_nor_anything_of_the_scores_but_their_order(
    comments, rising
):
    toxic, scores, mentioned = comments
    order = np.random.default_rng(0).permutation(len(toxic))
    changed = kernel.model_figures(toxic[order], rising(scores[order]), mentioned.iloc[order])
    expected = kernel.model_figures(*comments)
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
        for model, of in scores.items():
            of_rows = of.to_numpy()[rows]
            expected = score_from_outside(toxic[rows], of_rows, mentioned.iloc[rows])
            assert_same(drawn.loc[(draw, model)], expected)
