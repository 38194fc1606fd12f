"""Metric: the competition's metric, against the organisers' figures, the paper's definitions and scikit-learn."""

import warnings
from pathlib import Path

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, pmean
from sklearn.metrics import roc_auc_score

# What the organisers' benchmark kernel gives for reference/edge_case_frame.csv: 400 rows with empty identities, shares
# of exactly 0.5 and many equal predictions. Rows that mention the identity; its subgroup, BPSN and BNSP AUC, rounded.
FINAL_SCORE, OVERALL_AUC = 0.830609185889702, 0.8354103996562097
BIAS = {
    "homosexual_gay_or_lesbian": (85, 0.773558758315, 0.8116301502, 0.823534255599),
    "muslim": (105, 0.788170823885, 0.812160940325, 0.827308538987),
    "jewish": (97, 0.807894736842, 0.791692073171, 0.848920863309),
    "psychiatric_or_mental_illness": (108, 0.82641509434, 0.80450102296, 0.863564213564),
    "white": (120, 0.835998877666, 0.88321385902, 0.785878787879),
    "male": (105, 0.836757153338, 0.868555018927, 0.807210031348),
    "black": (110, 0.858987090367, 0.838127013346, 0.848370927318),
    "female": (113, 0.859020116807, 0.850649350649, 0.830658736393),
    "christian": (88, 0.878645833333, 0.867557803468, 0.83678057554),
}
AUCS = ["subgroup_auc", "bpsn_auc", "bnsp_auc"]


@pytest.fixture
def frame():
    return pd.read_csv(Path(__file__).parent / "reference" / "edge_case_frame.csv")


def tables(toxic, scores, mentioned):
    bias = kernel.bias_table(toxic, scores, mentioned)
    return bias, kernel.score_table(toxic, scores, bias)


def tables_of(frame):
    return tables((frame["target"] >= 0.5).to_numpy(), frame[["p"]], frame[[*BIAS]] >= 0.5)


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
    arguments = toxic, kernel.dense_ranks(np.concatenate(list(scores.values()))), mentioned
    assert kernel.subgroup_auc(*arguments) == pytest.approx(0.888888888888889, abs=1e-15)
    assert kernel.bpsn_auc(*arguments) == pytest.approx(0.888888888888889, abs=1e-15)
    assert kernel.bnsp_auc(*arguments) == 1.0
    assert kernel.negative_aeg(*arguments) == pytest.approx(0.3888888888888889, abs=1e-15)
    assert kernel.positive_aeg(*arguments) == pytest.approx(-0.2777777777777778, abs=1e-15)


def test_organisers_score_of_the_reference_frame(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bias, score = tables_of(frame)
    assert score.loc["p", "final_score"] == pytest.approx(FINAL_SCORE, abs=1e-12)
    assert score.loc["p", "overall_auc"] == pytest.approx(OVERALL_AUC, abs=1e-12)
    for identity, (comments, *aucs) in BIAS.items():
        assert bias.loc[("p", identity), "comments"] == comments
        assert bias.loc[("p", identity), AUCS].tolist() == pytest.approx(aucs, abs=1e-12)
    assert bias["toxic"].tolist() == [((frame["target"] >= 0.5) & (frame[name] >= 0.5)).sum() for name in BIAS]


def mean_of_others(column, without):
    """Power mean, p = -5, of the organisers' AUCs of all identities but some."""
    values = [row[column] for identity, row in BIAS.items() if identity not in without]
    return (sum(value**-5 for value in values) / len(values)) ** (-1 / 5)


def test_identity_that_no_row_mentions_is_left_out_with_a_warning(frame):
    with pytest.warns(UserWarning, match="^black: no subgroup_auc, bpsn_auc, bnsp_auc.* 0 comments mention") as warned:
        bias, score = tables_of(frame.assign(black=np.nan))
    assert len(warned) == 1
    assert bias.loc[("p", "black"), ["comments", "toxic"]].tolist() == [0, 0]
    assert bias.loc[("p", "black"), AUCS].isna().all()
    parts = [mean_of_others(column, without=["black"]) for column in (1, 2, 3)]
    assert score.loc["p", AUCS].tolist() == pytest.approx(parts, abs=1e-11)
    assert score.loc["p", "final_score"] == pytest.approx((OVERALL_AUC + sum(parts)) / 4, abs=1e-11)


def test_identity_with_harmless_rows_only_keeps_the_auc_that_it_has(frame):
    harmless = frame.assign(target=frame["target"].where(~(frame["black"] >= 0.5), 0.0))
    with pytest.warns(UserWarning, match="black: no subgroup_auc, bnsp_auc.* 110 comments .* 0 of them toxic"):
        bias, score = tables_of(harmless)
    assert bias.loc[("p", "black"), "bpsn_auc"] == pytest.approx(0.653575388027, abs=1e-12)  # the organisers'
    assert bias.loc[("p", "black"), ["subgroup_auc", "bnsp_auc"]].isna().all()
    assert score.loc["p"].notna().all()
    for name in AUCS:
        assert score.loc["p", name] == pytest.approx(pmean(bias[name].dropna(), -5), abs=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_rows_of_one_class_have_no_score(frame, target):
    bias, score = tables_of(frame.assign(target=target))
    assert bias[AUCS].isna().all(axis=None)
    assert score.isna().all(axis=None)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_without_any_identity_have_an_overall_auc_and_no_score(frame):
    _, score = tables_of(frame.assign(**dict.fromkeys(BIAS, np.nan)))
    assert score.loc["p", "overall_auc"] == pytest.approx(OVERALL_AUC, abs=1e-12)
    assert score.loc["p", [*AUCS, "final_score"]].isna().all()


@pytest.mark.parametrize(
    ("prediction", "value"), [(lambda t: 0.3 + 0 * t, 0.5), (lambda t: t >= 0.5, 1), (lambda t: t < 0.5, 0)]
)
def test_constant_perfect_and_reversed_predictions(frame, prediction, value):
    bias, score = tables_of(frame.assign(p=prediction(frame["target"]).astype(float)))
    assert (bias[AUCS] == value).all(axis=None)
    assert score.loc["p"].tolist() == pytest.approx([value] * 5, abs=1e-15)


def test_prediction_that_is_not_a_number_is_refused(frame):
    frame.loc[[3, 8], "p"] = np.nan
    with pytest.raises(ValueError, match="2 of 400 .*NaN"):
        tables_of(frame)


def test_models_side_by_side_get_what_each_gets_alone(frame):
    toxic, mentioned = (frame["target"] >= 0.5).to_numpy(), frame[[*BIAS]] >= 0.5
    scores = pd.DataFrame({"worse": frame["p"].round(1), "better": frame["p"] + frame["target"]})
    bias, score = tables(toxic, scores, mentioned)
    assert list(score.index) == ["worse", "better"]
    for model in scores:
        bias_alone, score_alone = tables(toxic, scores[[model]], mentioned)
        pd.testing.assert_frame_equal(bias.loc[[model]], bias_alone)
        pd.testing.assert_frame_equal(score.loc[[model]], score_alone)


def test_a_missing_auc_is_warned_of_once_and_not_for_each_model(frame):
    scores = pd.DataFrame({"one": frame["p"], "two": -frame["p"]})
    with pytest.warns(UserWarning) as warned:
        tables((frame["target"] >= 0.5).to_numpy(), scores, frame[[*BIAS]].assign(male=0, white=0) >= 0.5)
    assert sorted(str(warning.message).split(":")[0] for warning in warned) == ["male", "white"]


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([0.9, 0.8, 1.0], 0.8781368734424796),  # the organisers'
        ([0.9, 0.0, 1.0], 0.0),  # the organisers'
        ([0.9, np.nan, 0.8, 1.0], 0.8781368734424796),
        ([0.7], 0.7),
        ([np.nan], np.nan),
        ([], np.nan),
    ],
)
def test_power_mean(values, mean):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel.power_mean(values) == pytest.approx(mean, abs=1e-15, nan_ok=True)


@settings(deadline=None)
@given(values=st.lists(st.floats(0.01, 1), min_size=1, max_size=9), power=st.sampled_from([-5, -1, 1, 3]))
def test_power_mean_is_scipys(values, power):
    assert kernel.power_mean(values, power) == pytest.approx(pmean(values, power), abs=1e-12)


@st.composite
def comments(draw, fewest=1):
    """toxic, bool (rows,); scores, a DataFrame with many ties; mentioned, a bool DataFrame of two identities."""
    rows = draw(st.integers(fewest, 40))
    columns = [draw(st.lists(st.booleans(), min_size=rows, max_size=rows)) for _ in range(3)]
    scores = draw(st.lists(st.integers(0, 12), min_size=rows, max_size=rows))
    return np.array(columns[0]), pd.DataFrame({"model": scores}) / 12, pd.DataFrame({"a": columns[1], "b": columns[2]})


def sklearn_auc(toxic, scores, rows):
    return roc_auc_score(toxic[rows], scores[rows]) if len(set(toxic[rows])) == 2 else np.nan


def scipy_aeg(subgroup, background):
    """0.5 - U(background, subgroup) / pairs, from the scores of two groups of comments of one class."""
    pairs = len(subgroup) * len(background)
    return 0.5 - mannwhitneyu(background, subgroup).statistic / pairs if pairs else np.nan


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(deadline=None)
@given(comments=comments())
def test_every_auc_is_scikit_learns_and_every_equality_gap_scipys_on_the_rows_of_its_definition(comments):
    toxic, scores, mentioned = comments
    bias, score = tables(*comments)
    model = scores["model"].to_numpy()
    everywhere = np.ones(len(toxic), bool)
    assert score.loc["model", "overall_auc"] == pytest.approx(
        sklearn_auc(toxic, model, everywhere), abs=1e-12, nan_ok=True
    )
    for identity in mentioned:
        subgroup = mentioned[identity].to_numpy()
        rows_of = {
            "subgroup_auc": subgroup,
            "bpsn_auc": (subgroup & ~toxic) | (~subgroup & toxic),
            "bnsp_auc": (subgroup & toxic) | (~subgroup & ~toxic),
        }
        expected = {name: sklearn_auc(toxic, model, rows) for name, rows in rows_of.items()}
        for name, rows in (("positive_aeg", toxic), ("negative_aeg", ~toxic)):
            expected[name] = scipy_aeg(model[rows & subgroup], model[rows & ~subgroup])
        figures = dict(bias.loc[("model", identity), [*expected]])
        assert figures == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=50, deadline=None)
@given(
    comments=comments(),
    rising=st.sampled_from([np.exp, np.cbrt, lambda x: 2 * x - 7, lambda x: x.astype(np.float32), lambda x: x / 1e6]),
)
def test_only_the_order_of_the_scores_counts(comments, rising):
    toxic, scores, mentioned = comments
    pd.testing.assert_frame_equal(tables(toxic, rising(scores), mentioned)[1], tables(*comments)[1], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=50, deadline=None)
@given(comments=comments(), data=st.data())
def test_the_order_of_the_rows_does_not_count(comments, data):
    toxic, scores, mentioned = comments
    order = data.draw(st.permutations(range(len(toxic))))
    shuffled = toxic[order], scores.iloc[order], mentioned.iloc[order]
    pd.testing.assert_frame_equal(tables(*shuffled)[1], tables(*comments)[1], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=50, deadline=None)
@given(comments=comments())
def test_reversed_scores_have_the_complementary_auc(comments):
    toxic, scores, mentioned = comments
    bias, reversed_bias = tables(*comments)[0], tables(toxic, -scores, mentioned)[0]
    pd.testing.assert_frame_equal(reversed_bias[AUCS], 1 - bias[AUCS], rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=50, deadline=None)
@given(comments=comments(fewest=15))
def test_final_score_is_the_mean_of_the_four_parts_and_lies_between_them(comments):
    parts = tables(*comments)[1].loc["model"]
    final_score = parts.pop("final_score")
    assume(parts.notna().all())
    assert list(parts.index) == ["overall_auc", *AUCS]
    assert final_score == pytest.approx(sum(parts) / 4, abs=1e-12)
    assert parts.min() - 1e-12 <= final_score <= parts.max() + 1e-12


def sklearn_final_score(toxic, scores, mentioned):
    """The competition's score by its definition, every AUC scikit-learn's."""
    everywhere = np.ones(len(toxic), bool)
    subgroups = [mentioned[identity].to_numpy() for identity in mentioned]
    aucs = np.array(
        [[sklearn_auc(toxic, scores, rows) for rows in (group, group != toxic, group == toxic)] for group in subgroups]
    )
    return np.mean([sklearn_auc(toxic, scores, everywhere), *np.mean(aucs**-5.0, axis=0) ** (-1 / 5)])


def test_bootstrap_figures_are_those_of_rows_drawn_with_replacement(frame):
    toxic, mentioned = (frame["target"] >= 0.5).to_numpy(), frame[[*BIAS]] >= 0.5
    mentioned["other"] = frame["p"].round(3).mod(0.004) < 0.002  # an identity that is not part of the score
    scores = pd.DataFrame({"model": frame["p"], "worse": frame["p"].round(1)})
    drawn = kernel.bootstrap(toxic, scores, mentioned, resamples=20, seed=3)
    generator = np.random.default_rng(3)
    for resample in range(20):
        rows = generator.integers(len(toxic), size=len(toxic))  # the same rows for both models
        of_rows, other = toxic[rows], mentioned["other"].to_numpy()[rows]
        for model in scores:
            values, figures = scores[model].to_numpy()[rows], drawn.loc[resample, model]
            score = sklearn_final_score(of_rows, values, mentioned.iloc[rows][[*BIAS]])
            assert figures["all", "final_score"] == pytest.approx(score, abs=1e-12)
            assert figures["all", "overall_auc"] == pytest.approx(roc_auc_score(of_rows, values), abs=1e-12)
            bpsn = sklearn_auc(of_rows, values, other != of_rows)
            assert figures["other", "bpsn_auc"] == pytest.approx(bpsn, abs=1e-12)
            gap = scipy_aeg(values[~of_rows & other], values[~of_rows & ~other])
            assert figures["other", "negative_aeg"] == pytest.approx(gap, abs=1e-12)
    assert drawn["model", "all", "final_score"].nunique() == 20
