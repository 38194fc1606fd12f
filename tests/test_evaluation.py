"""Evaluation: other models, intervals, pictures, thresholds, against counting and scikit-learn."""

from types import SimpleNamespace

import kernel
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.metrics import precision_score, recall_score, roc_auc_score
from test_metric import score_from_outside

ROWS = 600
MODELS = ("LSTM", "TF-IDF")
FIGURES = kernel.BIAS_AUCS + kernel.EQUALITY_GAPS


def comments():
    """toxic, bool (rows,); scores of two models; mentioned, of the competition's identities."""
    generator = np.random.default_rng(0)
    toxic = generator.random(ROWS) < 0.3
    scores = {}
    for model in ("TF-IDF", "LSTM"):
        scores[model] = expit(generator.normal(size=ROWS) + 1.5 * toxic)
    mentioned = generator.random((ROWS, 9)) < 0.2
    return toxic, pd.DataFrame(scores), pd.DataFrame(mentioned, columns=kernel.IDENTITIES)


def run_cells(texts, **given):
    """The variables that cells leave, each found by a text in it, that are given some."""
    names = vars(kernel) | given
    for text in texts:
        kernel.run_cell(kernel.number_of_cell(text), names)
    return names


# --- other models' predictions ---


def write(path, ids, predictions):
    path.parent.mkdir(exist_ok=True)
    pd.DataFrame({"id": ids.split(), "prediction": predictions}).to_csv(path, index=False)
    return path


def compare(*files, held_out="7 07", of_test="3"):
    """The scores that the cell reads: of the comments held out, then of those to score."""
    held_out, of_test = held_out.split(), of_test.split()
    names = run_cells(
        ["other_scores = pd.DataFrame("],
        holdout=pd.DataFrame({"id": held_out}),
        test=pd.DataFrame({"id": of_test}),
        settings=SimpleNamespace(compare_files=files),
        baseline_scores=np.zeros(len(held_out) + len(of_test)),
    )
    return names["other_scores"]


def test_predictions_of_another_model_are_read_to_the_last_digit(tmp_path):
    numbers = np.random.default_rng(0).random(300) ** 40
    ids = " ".join(map(str, range(300)))
    path = write(tmp_path / "bayes.csv", ids, numbers)
    found = compare(path, held_out=ids, of_test="x")["bayes.csv"]
    assert np.array_equal(found[:300], numbers)


def test_faults_in_the_predictions_of_another_model_are_named(tmp_path):
    path = write(tmp_path / "bert.csv", "a b a", 0.5)
    with pytest.raises(ValueError, match=rf"{path}, row 3 \(id a\), column id"):
        compare(path)


def test_other_models_may_be_of_the_held_out_comments_or_of_the_test_comments(tmp_path):
    held_out = write(tmp_path / "bert.csv", "07 7 9", [-0.2, 0.1, 0.9])
    of_test = write(tmp_path / "roberta.csv", "3 7", [0.3, 2.5])
    scores = compare(held_out, of_test)
    assert list(scores) == ["TF-IDF", "bert.csv", "roberta.csv"]
    assert list(scores["bert.csv"]) == pytest.approx([0.1, -0.2, np.nan], nan_ok=True)
    assert list(scores["roberta.csv"]) == pytest.approx([2.5, np.nan, 0.3], nan_ok=True)


def test_other_models_that_lack_some_of_both_are_refused(tmp_path):
    path = write(tmp_path / "bert.csv", "7 07", [0.1, np.nan])
    with pytest.raises(ValueError, match=f"{path} lacks 1 held-out comments and 1 test comments"):
        compare(path)


@pytest.mark.parametrize("paths", [["a/bert.csv", "b/bert.csv"], ["LSTM"]])
def test_other_models_have_names_of_their_own(tmp_path, paths):
    """Which no column of the tables has either: these do not end in .csv."""
    paths = [write(tmp_path / path, "3", 0.3) for path in paths]
    with pytest.raises(ValueError, match="different names that end in .csv"):
        compare(*paths)


# --- the picture ---


@pytest.fixture
def picture(monkeypatch):
    """What plot_bias draws, a matplotlib figure."""
    kernel.plt.switch_backend("agg")
    monkeypatch.setattr(kernel.plt, "show", lambda: None)
    yield lambda *arguments: kernel.plot_bias(*arguments) or kernel.plt.gcf()
    kernel.plt.close("all")


def figures_of_two(identities):
    """Figures of two models, and the ends of their intervals, as plot_bias takes them."""
    rows = pd.MultiIndex.from_product([MODELS, ["all", *identities]], names=["model", "identity"])
    values = np.random.default_rng(0).random((len(rows), 5))
    figures = pd.DataFrame(values, rows, FIGURES)
    figures[kernel.EQUALITY_GAPS] -= 0.5
    return figures, figures - 0.1, figures + 0.2


def test_the_picture_shows_each_figure_and_its_interval_in_the_row_of_its_identity(picture):
    figures, low, high = figures_of_two(kernel.IDENTITIES)
    *panels, legend = picture(figures, low, high).axes
    named = [text.get_text() for text in legend.get_legend().get_texts()]
    assert sorted(named) == sorted(MODELS)
    names = [label.get_text().replace("\n", " ") for label in panels[0].get_yticklabels()]
    assert names == [identity.replace("_", " ") for identity in kernel.IDENTITIES]
    for axis, name in zip(panels, FIGURES, strict=True):
        assert axis.get_title() == name
        points = figures[name].drop("all", level="identity")
        left, right = axis.get_xlim()
        assert points.between(left, right).all()
        assert left == -right or name in kernel.BIAS_AUCS  # fair is the middle
        lines = {line.get_label(): line for line in axis.lines}
        lstm, tf_idf = (lines[model] for model in MODELS)
        assert abs(lstm.get_ydata() - tf_idf.get_ydata()).min() > 0.2, "one hides the other"
        assert lstm.get_color() != tf_idf.get_color()
        for model, bars in zip(MODELS, axis.collections, strict=True):
            x, y = lines[model].get_data()
            assert list(x) == list(points[model])
            assert list(np.rint(y)) == [*range(9)]
            left_ends, right_ends = np.array(bars.get_segments()).transpose(1, 2, 0)
            assert np.allclose(left_ends, [x - 0.1, y])
            assert np.allclose(right_ends, [x + 0.2, y])


@pytest.mark.parametrize("identities", [["male"], ["male", *kernel.OTHER_IDENTITIES]])
def test_missing_figures_leave_gaps_in_the_picture(picture, identities):
    tables = [of.loc[["TF-IDF"]] for of in figures_of_two(identities)]
    for of in tables:
        of.loc[("TF-IDF", "male")] = np.nan
    drawn = picture(*tables)
    drawn.canvas.draw()
    for axis in drawn.axes[:5]:
        first, *others = np.isnan(axis.lines[0].get_xdata())
        assert first
        assert len(others) == len(identities) - 1
        assert not any(others)


# --- what a score means ---


@pytest.mark.parametrize("a, b", [(1.6, -1.0), (1.0, 0.0), (0.3, 0.5)])
def test_calibration_finds_the_curve_that_shares_of_raters_follow(a, b):
    generator = np.random.default_rng(0)
    scores = generator.beta(1, 3, 20_000).clip(1e-6, 1 - 1e-6)
    expected = expit(a * logit(scores) + b)
    calibrated = kernel.calibrate(scores[:, None], [[a, b]])
    assert calibrated[:, 0] == pytest.approx(expected, abs=1e-9)
    shares = generator.binomial(10, expected) / 10
    shares[::7] = np.nan
    found = kernel.fit_calibration(scores, shares)
    assert found == pytest.approx([a, b], abs=0.1)


SCORES = np.linspace(0, 1, 50)


@pytest.mark.parametrize("shares", [SCORES * 0, SCORES * 0 + 1, SCORES * np.nan, 1 - SCORES])
def test_labels_that_no_rising_curve_can_be_learned_from_are_not_calibrated(shares):
    curve = kernel.fit_calibration(SCORES, shares)
    calibrated = kernel.calibrate(SCORES[:, None], [curve])
    assert calibrated[:, 0] == pytest.approx(SCORES, abs=1e-6)


def test_thresholds_flag_the_share_or_reach_the_precision_that_they_are_named_after():
    toxic, scores, _ = comments()
    scores = scores["LSTM"].to_numpy()
    thresholds = kernel.find_thresholds(toxic, scores)
    flagged = scores >= thresholds.pop("flags 5%")
    assert flagged.mean() == pytest.approx(0.05, abs=1 / ROWS)
    assert [*thresholds] == ["precision 70%", "precision 90%"]
    for found, wanted in zip(thresholds.values(), (0.7, 0.9), strict=True):
        assert found == min(score for score in scores if toxic[scores >= score].mean() >= wanted)
    wrong = kernel.find_thresholds(toxic, np.where(toxic, 0.2, 0.3))
    assert np.isnan(wrong["precision 90%"])


def test_what_thresholds_do_is_counted():
    toxic, scores, mentioned = comments()
    scores = scores["LSTM"].to_numpy()
    mentioned["male"] = toxic
    low = np.sort(scores)[200]  # a comment that lies on it is flagged
    table = kernel.flag({"low": low, "high": 0.8, "none": np.nan}, toxic, scores, mentioned)
    for name, threshold in (("low", low), ("high", 0.8)):
        flagged = scores >= threshold
        expected = {
            "threshold": threshold,
            "flagged": flagged.mean(),
            "precision": precision_score(toxic, flagged),
            "found": recall_score(toxic, flagged),
            "false_positives": 1 - recall_score(~toxic, ~flagged),
            "of male": np.nan,  # no harmless comment mentions it
        }
        for identity in kernel.IDENTITIES[1:]:
            expected[f"of {identity}"] = flagged[mentioned[identity] & ~toxic].mean()
        assert dict(table.loc[name]) == pytest.approx(expected, nan_ok=True)
    assert table.loc["none", "found"] == 0
    assert np.isnan(table.loc["none", "precision"])


@pytest.fixture(scope="module")
def evaluation():
    """The variables that the cells of the evaluation leave, of comments that are all held out, in
    a short time.
    """
    toxic, scores, mentioned = comments()
    generator = np.random.default_rng(1)
    number = np.where(toxic, toxic.cumsum(), (~toxic).cumsum())  # among those of its class
    mentioned["asian"] = number <= 10
    mentioned["hindu"] = mentioned["asian"]  # ten toxic and ten harmless comments, and one less
    mentioned.loc[np.argmax(toxic), "hindu"] = False
    mentioned["male"] &= toxic
    scores["LSTM"] += 0.3 * (mentioned["black"] & ~toxic)
    holdout = pd.DataFrame({"target": 0.8 * toxic, "comment_text": ""})
    holdout["id"] = holdout.index.astype(str)
    holdout[kernel.SUBTYPES] = generator.integers(0, 11, (ROWS, 6)) / 10
    holdout.loc[::3, "threat"] = holdout["obscene"] = np.nan
    predicted = np.column_stack([scores["LSTM"] / 2, generator.random((ROWS, 6))])
    cells = ["sizes = ", "bias = {", "calibrations, total"]
    cells += ["label_figures = {}", "find_thresholds(holdout", "wrong = holdout"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel.plt, "show", kernel.plt.close)
        return run_cells(
            cells,
            holdout=holdout,
            holdout_toxic=toxic,
            holdout_mentioned=mentioned,
            holdout_rows=np.arange(ROWS),
            groups=np.arange(ROWS),
            to_balance=toxic[:, None],
            ensemble=SimpleNamespace(mean_scores=lambda: predicted),
            scores_by_network={"model_1": predicted**2, "model_2": 2 * predicted - predicted**2},
            best_first=["model_2", "model_1"],
            other_scores=scores[["TF-IDF"]],
            settings=kernel.Settings(),
            patience=0,
            show_comments=False,
            decisive="final_score",
        )


def test_intervals_hold_their_own_figures(evaluation):
    low, high, figures = (evaluation[name] for name in ("low", "high", "figures"))
    inside = (low <= figures) & (figures <= high)
    assert (inside | figures.isna()).all(axis=None)


def test_identities_with_enough_comments_of_both_classes_are_shown_beside_the_nine(evaluation):
    bias = evaluation["bias"]["LSTM"]
    assert list(bias.index) == [*kernel.IDENTITIES, "asian"]
    assert list(bias.loc["asian", ["comments", "toxic"]]) == [20, 10]
    assert evaluation["worst_identity"] == "black"  # not male, of whom no AUC can be computed


def test_intervals_are_those_of_95_of_100_draws_of_differences_too(evaluation):
    draws = evaluation["drawn"].xs("all", level="identity")["final_score"].unstack()
    assert len(draws) == kernel.FEWEST_DRAWS, "since the time is up"
    finals = evaluation["final_scores"]["final_score"]
    ends = {**evaluation["ends"].T, "above": evaluation["ends_above"].loc["TF-IDF"]}
    for of in (draws, finals):
        of["above"] = of["LSTM"] - of["TF-IDF"]
    for name, (low, high) in ends.items():
        expected = np.quantile(draws[name], [0.025, 0.975])
        assert [low, high] == pytest.approx(expected, abs=1e-12)
        assert low <= finals[name] <= high


def test_each_number_of_networks_has_a_calibration_of_its_own(evaluation):
    """Of the mean of the best ones, from the half that nothing is measured on."""
    fitted = ~evaluation["measured"]
    best, both = evaluation["scores_by_network"]["model_2"], evaluation["ensemble"].mean_scores()
    shares = evaluation["holdout"]["target"].to_numpy()[fitted]
    found = []
    for curves, scores in zip(evaluation["calibrations"], (best, both), strict=True):
        assert len(curves) == 7
        expected = kernel.fit_calibration(scores[fitted, 0], shares)
        assert curves[0] == pytest.approx(expected, abs=1e-4)
        found.append(curves[0])
    assert found[0] != pytest.approx(found[1], abs=0.05)


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
    comments, auc = table.loc["obscene"]
    assert comments == 0
    assert np.isnan(auc)


def test_the_surest_errors_come_first_and_last_and_are_about_the_worst_identity(evaluation):
    error = evaluation["folder_shares"]["toxicity"] - evaluation["holdout"]["target"]
    about = error[evaluation["holdout_mentioned"]["black"]].sort_values(ascending=False)
    assert list(evaluation["wrong"]["id"]) == list(about.index.astype(str))


# --- the leaderboard ---


def leaderboard(submissions, labelled):
    """The table of the cell that scores submissions."""
    lstm = submissions[["LSTM"]].to_numpy()
    names = run_cells(
        ["leaderboards = {}"],
        test=submissions[["id"]],
        ensemble=SimpleNamespace(mean_scores=lambda: lstm),
        holdout=[],
        other_scores=submissions[["TF-IDF"]],
        labelled_tests={"public": labelled},
    )
    return names["leaderboards"]["public"]


def test_the_leaderboard_is_the_score_of_the_rows_that_have_labels():
    toxic, scores, mentioned = comments()
    labelled = mentioned * 0.5
    labelled["id"] = scores["id"] = [f"{row:03}" for row in range(ROWS)]
    labelled["toxicity"] = toxic * 0.5
    rows = slice(350, ROWS - 1)
    labelled.loc[ROWS - 1, "id"] = "unknown"
    labelled = labelled[350:].replace({"male": {0.0: np.nan}})  # which is no mention
    table = leaderboard(scores[::-1].reset_index(drop=True), labelled)
    assert list(table["rows"]) == [249, 249]
    for model in MODELS:
        of_rows = scores[model].to_numpy()[rows]
        expected = score_from_outside(toxic[rows], of_rows, mentioned[rows])
        for part in kernel.SCORE_PARTS:
            of_part = pytest.approx(expected.at["all", part], abs=1e-12)
            assert table.at[model, part] == of_part


def test_labels_of_other_comments_score_nothing():
    labels = dict.fromkeys(kernel.IDENTITIES, 0.0)
    labelled = pd.DataFrame({"id": ["a"], "toxicity": [1.0], **labels})
    submissions = pd.DataFrame({"id": ["b"], "LSTM": [0.5], "TF-IDF": [0.5]})
    table = leaderboard(submissions, labelled)
    assert table.at["LSTM", "rows"] == 0
    assert table.loc["LSTM", kernel.SCORE_PARTS].isna().all()
