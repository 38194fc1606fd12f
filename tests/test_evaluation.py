"""Evaluation: other models, intervals, pictures, thresholds, against counting and scikit-learn."""

from types import SimpleNamespace

import kernel
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from scipy.stats import pmean
from sklearn.metrics import precision_score, recall_score, roc_auc_score
from test_metric import figures_from_outside

ROWS = 600
MODELS = ("LSTM", "TF-IDF")
GAPS = ["positive_aeg", "negative_aeg"]


def comments(seed=0):
    """toxic, bool (rows,); scores of two models; mentioned, of the competition's identities."""
    generator = np.random.default_rng(seed)
    toxic = generator.random(ROWS) < 0.3
    scores = pd.DataFrame(
        {name: expit(generator.normal(size=ROWS) + 1.5 * toxic) for name in ("TF-IDF", "LSTM")}
    )
    return toxic, scores, pd.DataFrame(generator.random((ROWS, 9)) < 0.2, columns=kernel.IDENTITIES)


# --- other models' predictions ---


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    pd.DataFrame(rows, columns=["id", "prediction"]).to_csv(path, index=False)
    return path


def test_predictions_of_another_model_keep_their_order_however_close_they_are(tmp_path):
    numbers = [f"1e-{power}" for power in range(300, 45, -1)] + [
        "0.00000000000000012345",
        "0.000000000000000123451",
    ]
    numbers += [repr(1 - 10.0**-power) for power in range(1, 16)]
    path = write(tmp_path / "bayes.csv", enumerate(numbers))
    read = kernel.read_predictions(path, pd.Series(map(str, range(len(numbers)))))
    assert list(read) == [float(number) for number in numbers] == sorted(read) and len(
        {*read}
    ) == len(numbers)


def test_what_another_model_has_no_prediction_for_is_missing(tmp_path):
    path = write(tmp_path / "bert.csv", {"07": -1.5, "8": 0.0, "7": 2.5}.items())
    found = kernel.read_predictions(path, pd.Series(["7", "x", "07"]))
    assert list(found) == pytest.approx([2.5, np.nan, -1.5], nan_ok=True)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([("a", 0.1), ("b", 0.2), ("a", 0.3)], ", row 3 (id a), column id"),
        ([("a", "high"), ("b", 0.2)], ", line 2, column prediction: could not convert string"),
    ],
)
def test_faults_in_the_predictions_of_another_model_are_named(tmp_path, rows, named):
    path = write(tmp_path / "bert.csv", rows)
    with pytest.raises(ValueError) as refusal:
        kernel.read_predictions(path, pd.Series(["a"]))
    assert str(refusal.value).startswith(f"{path}{named}")


def compare(*files, held_out=("1", "2"), of_test=("3",)):
    """The variables of the cell that reads other models' predictions."""
    holdout, test = (pd.DataFrame({"id": ids}) for ids in (held_out, of_test))
    names = {"holdout": holdout, "test": test, "mentioned": {"female": []}}
    names |= {"settings": SimpleNamespace(compare_files=files), "other_scores": pd.DataFrame()}
    kernel.run_cell(kernel.number_of_cell("other_submissions = {}"), names := vars(kernel) | names)
    return names["other_scores"], names["other_submissions"]


def test_other_models_may_be_of_the_held_out_comments_or_of_the_test_comments(tmp_path):
    held_out = write(tmp_path / "bert.csv", [("2", 0.2), ("1", 0.1), ("9", 0.9)])
    of_test = write(tmp_path / "roberta.csv", [("3", 0.3), ("1", 0.1)])
    scores, submissions = compare(held_out, of_test)
    assert scores.to_dict("list") == {"bert.csv": [0.1, 0.2]}
    assert {name: list(of) for name, of in submissions.items()} == {"roberta.csv": [0.3]}


def test_other_models_that_lack_some_of_both_are_refused(tmp_path):
    path = write(tmp_path / "bert.csv", [("1", 0.1), ("2", np.nan)])
    said = f"{path} lacks 1 held-out comments and 1 test comments"
    with pytest.raises(ValueError, match=said):
        compare(path)


@pytest.mark.parametrize("paths", [["a/bert.csv", "b/bert.csv"], ["LSTM"], ["id"]])
def test_other_models_have_names_of_their_own(tmp_path, paths):
    """Which no column of the tables has either: these do not end in .csv."""
    paths = [write(tmp_path / path, [("3", 0.3)]) for path in paths]
    with pytest.raises(ValueError, match="different names that end in .csv"):
        compare(*paths)


# --- intervals and the picture ---


def intervals_of(drawn):
    return (
        drawn.groupby(level=["model", "identity"], sort=False).quantile(q) for q in kernel.INTERVAL
    )


def test_intervals_hold_their_own_figures_and_95_of_100_draws():
    toxic, scores, mentioned = comments()
    figures = kernel.all_figures(toxic, scores, mentioned)
    drawn = kernel.bootstrap(toxic, scores, mentioned, seed=1)
    low, high = intervals_of(drawn)
    inside = ((low <= figures) & (figures <= high)) | figures.isna()
    assert inside.all(axis=None)
    of_draws = drawn.xs("LSTM", level="model")["bpsn_auc"].unstack()
    shares = (
        (low.loc["LSTM", "bpsn_auc"] <= of_draws) & (of_draws <= high.loc["LSTM", "bpsn_auc"])
    ).mean()
    assert shares.between(0.94, 0.96).all()
    higher = scores["LSTM"].to_numpy()[toxic][:, None] > scores["LSTM"].to_numpy()[~toxic]
    variances = (higher.mean(axis=axis).var() / higher.shape[1 - axis] for axis in (0, 1))
    error = np.sqrt(sum(variances))  # DeLong et al. 1988
    found = [of.at[("LSTM", "all"), "overall_auc"] for of in (low, high)]
    expected = figures.at[("LSTM", "all"), "overall_auc"] + error * np.array([-1.96, 1.96])
    assert found == pytest.approx(expected, abs=0.5 * error)


def test_intervals_hold_their_own_figures_when_the_time_was_short():
    figures = kernel.all_figures(*comments())
    low, high = intervals_of(kernel.bootstrap(*comments(), seed=1, until=0))
    assert (((low <= figures) & (figures <= high)) | figures.isna()).all(axis=None)


@pytest.fixture
def picture(monkeypatch):
    """What plot_bias draws, a matplotlib figure."""
    kernel.plt.switch_backend("agg")
    monkeypatch.setattr(kernel.plt, "show", lambda: None)
    yield lambda *arguments: kernel.plot_bias(*arguments) or kernel.plt.gcf()
    kernel.plt.close("all")


def figures_of_two(identities):
    """Figures of two models, and the ends of their intervals, as plot_bias takes them."""
    generator = np.random.default_rng(0)
    rows = pd.MultiIndex.from_product([MODELS, ["all", *identities]], names=["model", "identity"])
    values = generator.uniform(-0.5, 0.5, (len(rows), 5)) + [0.5, 0.5, 0.5, 0, 0]
    figures = pd.DataFrame(values, rows, kernel.BIAS_AUCS + kernel.EQUALITY_GAPS)
    return figures, figures - 0.1, figures + 0.2


def test_the_picture_shows_each_figure_and_its_interval_in_the_row_of_its_identity(picture):
    figures, low, high = figures_of_two(kernel.IDENTITIES)
    *panels, legend = picture(figures, low, high).axes
    assert [axis.get_title() for axis in panels] == kernel.BIAS_AUCS + kernel.EQUALITY_GAPS
    assert {text.get_text() for text in legend.get_legend().get_texts()} == {*MODELS}
    names = [label.get_text().replace("\n", " ") for label in panels[0].get_yticklabels()]
    assert names == [identity.replace("_", " ") for identity in kernel.IDENTITIES]
    for axis, figure in zip(panels, kernel.BIAS_AUCS + kernel.EQUALITY_GAPS, strict=True):
        lines = {line.get_label(): line for line in axis.lines}
        segments = [segment for of in axis.collections for segment in of.get_segments()]
        for model in MODELS:
            assert list(lines[model].get_xdata()) == list(figures.loc[model, figure][1:])
            assert list(np.rint(lines[model].get_ydata())) == [*range(9)]
            for x, y in lines[model].get_xydata():
                expected = pytest.approx(np.array([[x - 0.1, y], [x + 0.2, y]]))
                assert any(segment == expected for segment in segments)
        left, right = axis.get_xlim()
        assert all(left <= x <= right for x in figures[figure].drop("all", level=1))
        assert (left, right) == (-0.5, 0.5) or figure not in GAPS  # fair is the middle


def test_no_model_hides_the_other_and_the_lstm_is_blue(picture):
    figures, low, high = figures_of_two(kernel.IDENTITIES)
    same = [
        pd.concat({model: of.loc["LSTM"] for model in MODELS}, names=of.index.names)
        for of in (figures, low, high)
    ]
    drawn = picture(*same)
    drawn.canvas.draw()
    pixels = np.asarray(drawn.canvas.buffer_rgba())[::-1]  # from below
    for axis in drawn.axes[:5]:
        for line in axis.lines[:2]:
            x, y = axis.transData.transform(line.get_xydata()).astype(int).T
            red, green, blue, _ = pixels[y, x].astype(int).T
            is_grey = (red == green).all() and (red == blue).all()
            assert (blue > red + 100).all() if line.get_label() == "LSTM" else is_grey
            assert (red < 200).all()  # white is the paper


@pytest.mark.parametrize("identities", [["male"], ["male", *kernel.OTHER_IDENTITIES]])
def test_missing_figures_leave_gaps_in_the_picture(picture, identities):
    figures, low, high = figures_of_two(identities)
    for of in (figures, low, high):
        of.loc[("TF-IDF", "male")] = np.nan
    drawn = picture(*(of.loc[["TF-IDF"]] for of in (figures, low, high)))
    drawn.canvas.draw()
    for axis in drawn.axes[:5]:
        missing = np.isnan(axis.lines[0].get_xdata().astype(float))
        assert list(missing) == [True] + [False] * (len(identities) - 1)


# --- what a score means ---


def test_calibration_finds_the_curve_that_shares_of_raters_follow():
    generator = np.random.default_rng(0)
    scores = generator.beta(1, 3, 20_000).clip(1e-6, 1 - 1e-6)
    for a, b in ([1.6, -1.0], [1.0, 0.0], [0.3, 0.5]):
        expected = expit(a * logit(scores) + b)
        assert kernel.calibrate(scores[:, None], [[a, b]])[:, 0] == pytest.approx(
            expected, abs=1e-9
        )
        shares = generator.binomial(10, expected) / 10
        shares[::7] = np.nan
        assert kernel.fit_calibration(scores, shares) == pytest.approx([a, b], abs=0.1)


SCORES = np.linspace(0, 1, 50)


@pytest.mark.parametrize(
    "shares",
    [SCORES * 0, SCORES * 0 + 1, SCORES * np.nan, 1 - SCORES],
    ids=["none", "all", "unknown", "falling"],
)
def test_labels_that_no_rising_curve_can_be_learned_from_are_not_calibrated(shares):
    calibration = kernel.fit_calibration(SCORES, shares)
    assert kernel.calibrate(SCORES[:, None], [calibration])[:, 0] == pytest.approx(SCORES, abs=1e-6)


def test_thresholds_flag_the_share_or_reach_the_precision_that_they_are_named_after():
    toxic, scores, _ = comments()
    scores = scores["LSTM"].to_numpy()
    thresholds = kernel.find_thresholds(toxic, scores)
    assert list(thresholds) == ["flags 5%", "precision 70%", "precision 90%"]
    assert (scores >= thresholds["flags 5%"]).mean() == pytest.approx(0.05, abs=1 / ROWS)
    for name, wanted in (("precision 70%", 0.7), ("precision 90%", 0.9)):
        precise = [score for score in scores if toxic[scores >= score].mean() >= wanted]
        assert thresholds[name] == min(precise)
    assert np.isnan(kernel.find_thresholds(toxic, np.where(toxic, 0.2, 0.3))["precision 90%"])


def test_what_thresholds_do_is_counted():
    toxic, scores, mentioned = comments()
    scores = scores["LSTM"].to_numpy()
    thresholds = {
        "low": np.sort(scores)[200],
        "high": 0.8,
        "none": np.nan,
    }  # a comment that lies on it is flagged
    table = kernel.flag(thresholds, toxic, scores, mentioned.assign(male=toxic))
    for name, threshold in [*thresholds.items()][:2]:
        flagged, row = scores >= threshold, table.loc[name]
        assert row["threshold"] == threshold and row["flagged"] == pytest.approx(flagged.mean())
        assert row["precision"] == pytest.approx(precision_score(toxic, flagged))
        assert row["found"] == pytest.approx(recall_score(toxic, flagged))
        assert row["false_positives"] == pytest.approx(1 - recall_score(~toxic, ~flagged))
        for identity in mentioned.columns.drop("male"):
            assert row[f"of {identity}"] == pytest.approx(
                flagged[mentioned[identity] & ~toxic].mean()
            )
    assert table["of male"].isna().all()  # no harmless comment mentions it
    assert table.loc["none", "found"] == 0 and np.isnan(table.loc["none", "precision"])


@pytest.fixture(scope="module")
def evaluation():
    """The variables that the cells of the evaluation leave, of comments that are all held out."""
    toxic, scores, mentioned = comments()
    generator = np.random.default_rng(1)
    for name in ("asian", "hindu"):  # ten toxic and ten harmless comments, and one toxic one less
        mentioned[name] = False
        some = [*np.flatnonzero(toxic)[: 10 - (name == "hindu")], *np.flatnonzero(~toxic)[:10]]
        mentioned.loc[some, name] = True
    mentioned["male"] &= toxic
    scores["LSTM"] += 0.3 * (mentioned["black"] & ~toxic)
    holdout = {"id": np.arange(ROWS).astype(str), "comment_text": "", "target": 0.8 * toxic}
    holdout = pd.DataFrame(holdout)
    holdout[kernel.SUBTYPES] = generator.integers(0, 11, (ROWS, 6)) / 10
    holdout.loc[::3, "threat"] = holdout["obscene"] = np.nan
    predicted = np.column_stack([scores["LSTM"] / 2, generator.random((ROWS, 6))])
    networks = {"model_1": predicted**2, "model_2": 2 * predicted - predicted**2}
    ensemble = SimpleNamespace(mean_scores=lambda: predicted)
    rows = {
        "holdout_rows": np.arange(ROWS),
        "groups": np.arange(ROWS),
        "to_balance": toxic[:, None],
    }
    names = {"holdout": holdout, "holdout_toxic": toxic, "holdout_mentioned": mentioned, **rows}
    names |= {
        "ensemble": ensemble,
        "scores_by_network": networks,
        "best_first": ["model_2", "model_1"],
        "patience": np.inf,
    }
    names |= {"other_scores": scores[["TF-IDF"]], "settings": kernel.Settings()}
    names |= {"show_comments": False, "decisive": "final_score"}
    names = vars(kernel) | names
    texts = "sizes = ", "final_scores = ", "bias = {", "calibrations, total", "label_figures = {}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel.plt, "show", lambda: kernel.plt.close())
        patch.setattr(kernel, "RESAMPLES", 40)
        for text in (*texts, "find_thresholds(holdout", "wrong = holdout"):
            kernel.run_cell(kernel.number_of_cell(text), names)
    return names


def test_identities_with_enough_comments_of_both_classes_are_shown_beside_the_nine(evaluation):
    bias = evaluation["bias"]["LSTM"]
    assert list(bias.index) == [*kernel.IDENTITIES, "asian"]
    assert list(bias.loc["asian", ["comments", "toxic"]]) == [20, 10]
    assert evaluation["worst_identity"] == "black"  # not male, of whom no AUC can be computed


def test_differences_lie_in_their_intervals(evaluation):
    draws = evaluation["drawn"].xs("all", level="identity")["final_score"].unstack()
    low, high = np.quantile(draws["LSTM"] - draws["TF-IDF"], [0.025, 0.975])
    assert list(evaluation["ends_above"].loc["TF-IDF"]) == pytest.approx([low, high], abs=1e-12)
    finals = evaluation["final_scores"]["final_score"]
    assert low <= finals["LSTM"] - finals["TF-IDF"] <= high
    for model, (low, high) in evaluation["ends"].iterrows():
        assert low <= finals[model] <= high


def test_each_number_of_networks_has_a_calibration_of_its_own(evaluation):
    """Of the mean of the best ones, from the half that nothing is measured on."""
    calibrations, fitted = evaluation["calibrations"], ~evaluation["measured"]
    best, both = evaluation["scores_by_network"]["model_2"], evaluation["ensemble"].mean_scores()
    shares = evaluation["holdout"]["target"].to_numpy()[fitted]
    for curves, scores in zip(calibrations, (best, both), strict=True):
        assert len(curves) == 7
        assert curves[0] == pytest.approx(
            kernel.fit_calibration(scores[fitted, 0], shares), abs=1e-4
        )
    assert calibrations[0][0] != pytest.approx(calibrations[1][0], abs=0.05)


def test_label_aucs_are_those_of_scikit_learn_on_the_comments_whose_raters_were_asked(evaluation):
    table = evaluation["label_figures"]
    shares = evaluation["holdout"].rename(columns={"target": "toxicity"})
    assert list(table.index) == kernel.LABELS
    for label in table.index.drop("obscene"):
        known = shares[label].notna()
        has_label = shares[label][known] >= 0.5
        assert table.at[label, "comments"] == has_label.sum()
        expected = roc_auc_score(has_label, evaluation["folder_shares"][label][known])
        assert table.at[label, "auc"] == pytest.approx(expected, abs=1e-12)
    assert table.at["obscene", "comments"] == 0 and np.isnan(table.at["obscene", "auc"])


def test_the_surest_errors_come_first_and_last_and_are_about_the_worst_identity(evaluation):
    error = evaluation["folder_shares"]["toxicity"] - evaluation["holdout"]["target"]
    about = error[evaluation["holdout_mentioned"]["black"]].sort_values(ascending=False)
    assert list(evaluation["wrong"]["id"]) == [str(row) for row in about.index]


# --- the leaderboard ---


def leaderboard(submissions, labelled):
    """The table of the cell that scores submissions."""
    of_all = SimpleNamespace(mean_scores=lambda: submissions[["LSTM"]].to_numpy())
    names = {
        "test": submissions[["id"]],
        "ensemble": of_all,
        "holdout": [],
        "other_submissions": {},
    }
    names |= {"baseline_scores": submissions["TF-IDF"], "labelled_tests": {"public": labelled}}
    kernel.run_cell(kernel.number_of_cell("leaderboards = {}"), names := vars(kernel) | names)
    return names["leaderboards"]["public"]


def test_the_leaderboard_is_the_score_of_the_rows_that_have_labels():
    toxic, scores, mentioned = comments()
    ids = pd.Series([f"{row:03}" for row in range(ROWS)], name="id")
    target = pd.Series(toxic * 0.5, name="toxicity")
    labelled = pd.concat([ids, target, mentioned * 0.5], axis=1)[350:]
    empty = {"male": {0.0: np.nan}, "id": {"599": "unknown"}}  # an empty share is no mention
    submissions = pd.concat([ids, scores], axis=1)[::-1].reset_index(drop=True)
    table = leaderboard(submissions, labelled.replace(empty))
    assert dict(table["rows"]) == {"TF-IDF": 249, "LSTM": 249}
    rows = slice(350, ROWS - 1)
    for model, column in scores.items():
        of_rows = toxic[rows], column.to_numpy()[rows]
        named = (of.to_numpy()[rows] for _, of in mentioned.items())
        bias = pd.DataFrame([figures_from_outside(*of_rows, of) for of in named])
        means = (pmean(bias[name], -5) for name in kernel.BIAS_AUCS)
        parts = [roc_auc_score(*of_rows), *means]
        expected = pytest.approx([*parts, sum(parts) / 4], abs=1e-12)
        assert list(table.loc[model, kernel.SCORE_PARTS]) == expected


def test_labels_of_other_comments_score_nothing():
    labels = dict.fromkeys(kernel.IDENTITIES, 0.0)
    labelled = pd.DataFrame({"id": ["a"], "toxicity": [1.0], **labels})
    table = leaderboard(pd.DataFrame({"id": ["b"], "LSTM": [0.5], "TF-IDF": [0.5]}), labelled)
    assert table.at["LSTM", "rows"] == 0
    assert table.loc["LSTM", kernel.SCORE_PARTS].isna().all()
