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
BOTH = (False, True)


@pytest.fixture
def frame():
    return pd.read_csv(Path(__file__).parent / "reference" / "edge_case_frame.csv")


def parts_of(frame):
    """toxic, scores and mentioned, as the notebook takes them."""
    toxic = frame["target"] >= 0.5
    mentioned = frame[list(BIAS)] >= 0.5
    return toxic.to_numpy(), frame[["p"]], mentioned


def tables(toxic, scores, mentioned):
    """Bias table, DataFrame (identities, figures), and parts of the score, Series, of the one
    model.
    """
    with warnings.catch_warnings():
        # what cannot be computed is NaN, and no riddle on the screen
        warnings.simplefilter("error")
        figures = kernel.all_figures(toxic, scores, mentioned)
    (model,) = scores
    figures = figures.loc[model]
    return figures.drop("all"), figures.loc["all", kernel.SCORE_PARTS]


def test_every_identity_of_the_competition_is_scored():
    assert sorted(kernel.IDENTITIES) == sorted(BIAS)


def test_organisers_small_example():
    scores = {
        (False, False): [0.1, 0.2, 0.3],
        (False, True): [0.21, 0.31, 0.55],
        (True, False): [0.5, 0.8, 0.9],
        (True, True): [0.4, 0.6, 0.71],
    }
    toxic, mentioned = np.repeat(list(scores), 3, axis=0).T
    ranks = kernel.dense_ranks(np.concatenate(list(scores.values())))
    expected = {
        "subgroup_auc": 0.888888888888889,
        "bpsn_auc": 0.888888888888889,
        "bnsp_auc": 1.0,
        "negative_aeg": 0.3888888888888889,
        "positive_aeg": -0.2777777777777778,
    }
    figures = kernel.bias_metrics(toxic, ranks, mentioned)
    assert figures == pytest.approx(expected, abs=1e-15)


def test_organisers_score_of_the_reference_frame(frame):
    bias, score = tables(*parts_of(frame))
    assert score["final_score"] == pytest.approx(FINAL_SCORE, abs=1e-14)
    assert score["overall_auc"] == pytest.approx(OVERALL_AUC, abs=1e-14)
    for identity, aucs in BIAS.items():
        assert bias.loc[identity, AUCS].tolist() == pytest.approx(aucs, abs=6e-13)


def mean_of_others(column, without):
    """Power mean, p = -5, of the organisers' AUCs of all identities but one."""
    values = [aucs[column] for identity, aucs in BIAS.items() if identity != without]
    powers = [value**-5 for value in values]
    return np.mean(powers) ** (-1 / 5)


def test_identity_that_no_row_mentions_is_left_out(frame):
    bias, score = tables(*parts_of(frame.assign(black=np.nan)))
    assert bias.loc["black"].isna().all()
    parts = [mean_of_others(column, without="black") for column in range(3)]
    assert score[AUCS].tolist() == pytest.approx(parts, abs=1e-12)
    assert score["final_score"] == pytest.approx((OVERALL_AUC + sum(parts)) / 4, abs=1e-12)


def test_identity_with_harmless_rows_only_keeps_the_auc_that_it_has(frame):
    frame.loc[frame["black"] >= 0.5, "target"] = 0.0
    bias, score = tables(*parts_of(frame))
    organisers = 0.653575388027
    assert bias.loc["black", "bpsn_auc"] == pytest.approx(organisers, abs=6e-13)
    assert bias.loc["black", ["subgroup_auc", "bnsp_auc"]].isna().all()
    for name in AUCS:
        assert score[name] == pytest.approx(pmean(bias[name].dropna(), -5), abs=1e-12)


@pytest.mark.parametrize("target", [0.0, 1.0])
def test_rows_of_one_class_have_no_score(frame, target):
    bias, score = tables(*parts_of(frame.assign(target=target)))
    assert bias[AUCS].isna().all(axis=None)
    assert score.isna().all()


def test_rows_without_any_identity_have_an_overall_auc_and_no_score(frame):
    frame[list(BIAS)] = np.nan
    _, score = tables(*parts_of(frame))
    assert score["overall_auc"] == pytest.approx(OVERALL_AUC, abs=1e-14)
    assert score[[*AUCS, "final_score"]].isna().all()


@pytest.mark.parametrize(
    ("prediction", "value"),
    [
        (lambda target: 0 * target, 0.5),
        (lambda target: target >= 0.5, 1),
        (lambda target: target < 0.5, 0),
    ],
)
def test_constant_perfect_and_reversed_predictions(frame, prediction, value):
    frame["p"] = prediction(frame["target"]).astype(float)
    bias, score = tables(*parts_of(frame))
    assert (bias[AUCS] == value).all(axis=None)
    assert score.tolist() == pytest.approx([value] * 5, abs=1e-15)


def test_prediction_that_is_not_a_number_is_refused(frame):
    frame.loc[[3, 8], "p"] = np.nan
    with pytest.raises(ValueError, match="2 of 400 .*NaN"):
        tables(*parts_of(frame))


def test_models_side_by_side_get_what_each_gets_alone(frame):
    toxic, _, mentioned = parts_of(frame)
    scores = pd.DataFrame({"worse": frame["p"].round(1), "better": frame["p"] + frame["target"]})
    figures = kernel.all_figures(toxic, scores, mentioned)
    assert list(figures.index.unique("model")) == ["worse", "better"]
    for model in scores:
        alone = kernel.all_figures(toxic, scores[[model]], mentioned)
        pd.testing.assert_frame_equal(figures.loc[[model]], alone)


@st.composite
def comments(draw):
    """toxic, bool (rows,); scores, float (rows,), with many ties; mentioned, bool (rows,)."""
    rows = draw(st.integers(1, 40))
    columns = []
    for values in (BOTH, range(13), BOTH):
        column = st.lists(st.sampled_from(values), min_size=rows, max_size=rows)
        columns.append(np.array(draw(column)))
    toxic, scores, mentioned = columns
    return toxic, scores / 12, mentioned


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
    bpsn = (mentioned & ~toxic) | (~mentioned & toxic)
    bnsp = (mentioned & toxic) | (~mentioned & ~toxic)
    return {
        "subgroup_auc": sklearn_auc(toxic[mentioned], scores[mentioned]),
        "bpsn_auc": sklearn_auc(toxic[bpsn], scores[bpsn]),
        "bnsp_auc": sklearn_auc(toxic[bnsp], scores[bnsp]),
        "positive_aeg": scipy_aeg(scores, mentioned & toxic, ~mentioned & toxic),
        "negative_aeg": scipy_aeg(scores, mentioned & ~toxic, ~mentioned & ~toxic),
    }


@given(comments=comments())
def test_aucs_are_scikit_learns_and_equality_gaps_scipys_on_the_rows_of_their_definition(comments):
    toxic, scores, mentioned = comments
    ranks = kernel.dense_ranks(scores)
    overall = sklearn_auc(toxic, scores)
    assert kernel.overall_auc(toxic, ranks) == pytest.approx(overall, abs=1e-12, nan_ok=True)
    expected = figures_from_outside(*comments)
    figures = kernel.bias_metrics(toxic, ranks, mentioned)
    assert figures == pytest.approx(expected, abs=1e-12, nan_ok=True)


RISING = [
    np.exp,
    np.cbrt,
    np.float32,
    lambda scores: 2 * scores - 7,
    lambda scores: scores / 1e6,
]


@settings(max_examples=50)
@given(comments=comments(), rising=st.sampled_from(RISING), data=st.data())
def test_neither_the_order_of_the_rows_counts_nor_anything_of_the_scores_but_their_order(
    comments, rising, data
):
    toxic, scores, mentioned = comments
    mentioned = pd.DataFrame(dict.fromkeys(BIAS, mentioned))
    expected = kernel.model_figures(toxic, scores, mentioned)
    order = data.draw(st.permutations(range(len(toxic))))
    scores = rising(scores)
    changed = kernel.model_figures(toxic[order], scores[order], mentioned.iloc[order])
    pd.testing.assert_frame_equal(changed, expected, check_exact=True)


def test_bootstrap_figures_are_those_of_rows_drawn_with_replacement(frame, monkeypatch):
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
        rows = generator.integers(len(toxic), size=len(toxic))  # the same rows for both models
        drawn_toxic = toxic[rows]
        for model in scores:
            drawn_scores = scores[model].to_numpy()[rows]
            expected = {}
            for identity, column in mentioned.items():
                drawn_mentioned = column.to_numpy()[rows]
                figures = figures_from_outside(drawn_toxic, drawn_scores, drawn_mentioned)
                expected[identity] = figures
            parts = {"overall_auc": roc_auc_score(drawn_toxic, drawn_scores)}
            for name in AUCS:
                parts[name] = pmean([expected[identity][name] for identity in BIAS], -5)
            parts["final_score"] = np.mean([*parts.values()])
            expected["all"] = parts
            for identity, figures in expected.items():
                found = drawn.loc[(draw, model, identity), list(figures)]
                assert dict(found) == pytest.approx(figures, abs=1e-12)


def test_a_bootstrap_whose_time_is_up_ends_early(frame):
    drawn = kernel.bootstrap(*parts_of(frame), seed=3, until=0)
    assert 0 < len(drawn.index.unique("draw")) < kernel.RESAMPLES
