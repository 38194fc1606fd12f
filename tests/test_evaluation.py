"""Evaluation: other models, intervals, pictures, thresholds and the leaderboard, against counting and scikit-learn."""

from functools import partial
from pathlib import Path
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
    scores = pd.DataFrame({name: expit(generator.normal(size=ROWS) + 1.5 * toxic) for name in ("TF-IDF", "LSTM")})
    return toxic, scores, pd.DataFrame(generator.random((ROWS, 9)) < 0.2, columns=kernel.IDENTITIES)


# --- other models' predictions ---


def write(path, rows):
    pd.DataFrame(rows, columns=["id", "prediction"]).to_csv(path, index=False)
    return path


def test_predictions_of_another_model_keep_their_order_however_close_they_are(tmp_path):
    numbers = [f"1e-{power}" for power in range(300, 45, -1)] + ["0.00000000000000012345", "0.000000000000000123451"]
    numbers += [repr(1 - 10.0**-power) for power in range(1, 16)]
    path = write(tmp_path / "bayes.csv", enumerate(numbers))
    read = kernel.read_predictions(path, {"test": [*map(str, range(len(numbers)))]})["test"]
    assert list(read) == [float(number) for number in numbers] == sorted(read) and len({*read}) == len(numbers)


@pytest.mark.parametrize("parts", [(["7", "07"], ["x"]), (["7"], ["07", "x"]), (["7", "07"], ["07", "7"])])
def test_predictions_may_be_of_the_held_out_comments_of_the_test_comments_or_of_both(tmp_path, parts):
    predictions, parts = {"07": -1.5, "8": 0.0, "7": 2.5}, dict(zip(("held-out", "test"), parts, strict=True))
    found = kernel.read_predictions(write(tmp_path / "bert.csv", predictions.items()), parts)
    expected = {part: [predictions[name] for name in ids] for part, ids in parts.items() if "x" not in ids}
    assert {part: list(of) for part, of in found.items()} == expected


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([("a", 0.1)], " has no prediction for 1 held-out comments, such as b, and for 1 test comments, such as c"),
        ([("a", 0.1), ("b", np.nan)], " has no prediction for 1 held-out comments, such as b"),
        ([("a", 0.1), ("b", 0.2), ("a", 0.3)], ", row 3 (id a), column id"),
        ([("a", "high"), ("b", 0.2)], ", line 2, column prediction: could not convert string to float: 'high'"),
    ],
)
def test_faults_in_the_predictions_of_another_model_are_named(tmp_path, rows, named):
    path = write(tmp_path / "bert.csv", rows)
    with pytest.raises(ValueError) as refusal:
        kernel.read_predictions(path, {"held-out": ["a", "b"], "test": ["c"]})
    assert str(refusal.value).startswith(f"{path}{named}")


@pytest.mark.parametrize(
    "files", [["model_1.csv"], ["LSTM.csv"], ["female.csv"], ["toxicity score.csv"], ["bert/a.csv", "roberta/a.csv"]]
)
def test_other_models_have_names_of_their_own(files):
    ids = pd.DataFrame({"id": ["1", "2"]})
    names = {"train": ids.iloc[:1], "test": ids.iloc[1:], "holdout_rows": [0], "mentioned": dict.fromkeys(["female"])}
    names |= {"settings": SimpleNamespace(compare_files=list(map(Path, files))), "other_scores": pd.DataFrame()}
    names |= {"read_predictions": lambda path, parts: {part: [0.5] for part in parts}}
    run = partial(kernel.run_cell, kernel.number_of_cell("taken, compared = "))
    with pytest.raises(ValueError, match=f"{files[-1]} has the name of something else. Rename the file."):
        run(vars(kernel) | names)
    names["settings"].compare_files = [Path("bert.csv"), Path("roberta.csv")]
    run(names := vars(kernel) | names)
    assert [*names["other_scores"]] == [*names["other_submissions"]] == ["bert", "roberta"]


# --- intervals and the picture ---


def test_intervals_hold_their_own_figures_and_95_of_100_draws():
    toxic, scores, mentioned = comments()
    figures = kernel.all_figures(toxic, scores, mentioned)["LSTM"]
    drawn = kernel.bootstrap(toxic, scores, mentioned, seed=1)["LSTM"]
    intervals = kernel.intervals_of(drawn)
    for (identity, figure), value in figures.items():
        low, high = intervals[identity][figure]
        assert low <= value <= high
        assert 0.94 <= drawn[identity, figure].between(low, high).mean() <= 0.96
    higher = scores["LSTM"].to_numpy()[toxic][:, None] > scores["LSTM"].to_numpy()[~toxic]
    error = np.sqrt(sum(higher.mean(axis=axis).var() / higher.shape[1 - axis] for axis in (0, 1)))  # DeLong et al. 1988
    expected = figures["all", "overall_auc"] + error * np.array([-1.96, 1.96])
    assert intervals["all"]["overall_auc"] == pytest.approx(expected, abs=0.5 * error)


def test_intervals_hold_their_own_figures_when_the_time_was_short():
    figures, drawn = kernel.all_figures(*comments()), kernel.bootstrap(*comments(), seed=1, until=0)
    low, high = drawn.quantile(kernel.INTERVAL).to_numpy()
    assert ((low <= figures) & (figures <= high)).all()


@pytest.fixture
def picture(monkeypatch):
    """What plot_bias draws, a matplotlib figure."""
    kernel.plt.switch_backend("agg")
    monkeypatch.setattr(kernel.plt, "show", lambda: None)
    yield lambda *arguments: kernel.plot_bias(*arguments) or kernel.plt.gcf()
    kernel.plt.close("all")


def bias_of_two(identities):
    """Bias tables of two models, {model: DataFrame (identities, figures)}, and intervals around them."""
    generator = np.random.default_rng(0)
    values = generator.uniform(-0.5, 0.5, (2, len(identities), 5)) + [0.5, 0.5, 0.5, 0, 0]
    bias = {model: pd.DataFrame(of, identities, [*kernel.PANELS]) for model, of in zip(MODELS, values, strict=True)}
    figures = pd.concat({model: table.stack() for model, table in bias.items()})
    return bias, pd.DataFrame([figures - 0.1, figures + 0.2])


def test_the_picture_shows_each_figure_and_its_interval_in_the_row_of_its_identity(picture):
    bias, intervals = bias_of_two(kernel.IDENTITIES)
    drawn = picture(bias, intervals)
    *panels, legend = drawn.axes
    assert [axis.get_title() for axis in panels] == [*kernel.PANELS.values()]
    assert [text.get_text() for text in legend.get_legend().get_texts()] == ["LSTM", "TF-IDF"]
    names = [label.get_text().replace("\n", " ") for label in panels[0].get_yticklabels()]
    assert names == [identity.replace("_", " ") for identity in kernel.IDENTITIES]
    for axis, figure in zip(panels, kernel.PANELS, strict=True):
        lines = {line.get_label(): line for line in axis.lines}
        segments = [segment for lines_of in axis.collections for segment in lines_of.get_segments()]
        for model, table in bias.items():
            assert list(lines[model].get_xdata()) == list(table[figure])
            assert list(np.rint(lines[model].get_ydata())) == [*range(9)]
            for x, y in lines[model].get_xydata():
                assert any(segment == pytest.approx(np.array([[x - 0.1, y], [x + 0.2, y]])) for segment in segments)
        left, right = axis.get_xlim()
        assert all(left <= x <= right for table in bias.values() for x in table[figure])
        assert (left, right) == (-0.5, 0.5) or figure not in GAPS  # fair is the middle


def test_no_model_hides_the_other_and_the_lstm_is_blue(picture):
    bias, intervals = bias_of_two(kernel.IDENTITIES)
    same = {model: bias["LSTM"] for model in bias}
    drawn = picture(same, pd.concat({model: intervals["LSTM"] for model in bias}, axis=1))
    drawn.canvas.draw()
    pixels = np.asarray(drawn.canvas.buffer_rgba())[::-1]  # from below
    for axis in drawn.axes[:5]:
        for line in axis.lines[:2]:
            x, y = axis.transData.transform(line.get_xydata()).astype(int).T
            red, green, blue, _ = pixels[y, x].astype(int).T
            assert (
                (blue > red + 100).all() if line.get_label() == "LSTM" else (red == green).all() and (red == blue).all()
            )
            assert (red < 200).all()  # white is the paper


@pytest.mark.parametrize("identities", [["male"], ["male", *kernel.OTHER_IDENTITIES]])
def test_missing_figures_leave_gaps_in_the_picture(picture, identities):
    bias, intervals = bias_of_two(identities)
    bias["LSTM"].loc["male"] = intervals.loc[:, ("LSTM", "male")] = np.nan
    for drawn in (picture(bias, intervals), picture({"TF-IDF": bias["LSTM"]})):
        drawn.canvas.draw()
        for axis in drawn.axes[:5]:
            assert list(np.isnan(axis.lines[0].get_xdata())) == [True] + [False] * (len(identities) - 1)


# --- what a score means ---


def test_calibration_finds_the_curve_that_shares_of_raters_follow():
    generator = np.random.default_rng(0)
    scores = generator.beta(1, 3, 20_000).clip(1e-6, 1 - 1e-6)
    for a, b in ([1.6, -1.0], [1.0, 0.0], [0.3, 0.5]):
        expected = expit(a * logit(scores) + b)
        assert kernel.calibrate(scores[:, None], [[a, b]])[:, 0] == pytest.approx(expected, abs=1e-9)
        shares = generator.binomial(10, expected) / 10
        shares[::7] = np.nan
        assert kernel.fit_calibration(scores, shares) == pytest.approx([a, b], abs=0.1)


SCORES = np.linspace(0, 1, 50)


@pytest.mark.parametrize(
    "shares", [SCORES * 0, SCORES * 0 + 1, SCORES * np.nan, 1 - SCORES], ids=["none", "all", "unknown", "falling"]
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
    thresholds = {"low": np.sort(scores)[200], "high": 0.8, "none": np.nan}  # a comment that lies on it is flagged
    table = kernel.flag(thresholds, toxic, scores, mentioned.assign(male=toxic))
    for name, threshold in [*thresholds.items()][:2]:
        flagged, row = scores >= threshold, table.loc[name]
        assert row["threshold"] == threshold and row["flagged"] == pytest.approx(flagged.mean())
        assert row["precision"] == pytest.approx(precision_score(toxic, flagged))
        assert row["found"] == pytest.approx(recall_score(toxic, flagged))
        assert row["false_positives"] == pytest.approx(1 - recall_score(~toxic, ~flagged))
        for identity in mentioned.columns.drop("male"):
            assert row[f"of {identity}"] == pytest.approx(flagged[mentioned[identity] & ~toxic].mean())
    assert table["of male"].isna().all()  # no harmless comment mentions it
    assert table.loc["none", "found"] == 0 and np.isnan(table.loc["none", "precision"])


@pytest.fixture(scope="module")
def evaluation():
    """The variables that the cells of the evaluation leave, of comments that are all held out."""
    toxic, scores, mentioned = comments()
    generator = np.random.default_rng(1)
    for name in ("asian", "hindu"):  # ten toxic and ten harmless comments, and one toxic comment less
        mentioned[name] = False
        mentioned.loc[[*np.flatnonzero(toxic)[: 10 - (name == "hindu")], *np.flatnonzero(~toxic)[:10]], name] = True
    mentioned["male"] &= toxic
    scores["LSTM"] += 0.3 * (mentioned["black"] & ~toxic)
    train = pd.DataFrame({"id": np.arange(ROWS).astype(str), "comment_text": "", "target": 0.8 * toxic})
    train[kernel.SUBTYPES] = generator.integers(0, 11, (ROWS, 6)) / 10
    train.loc[::3, "threat"] = train["obscene"] = np.nan
    predicted = np.column_stack([scores["LSTM"] / 2, generator.random((ROWS, 6))])
    names = {"In": [], "train": train, "holdout_rows": np.arange(ROWS), "groups": np.arange(ROWS), "description": {}}
    names |= {"holdout_toxic": toxic, "holdout_mentioned": mentioned, "labels_to_balance": toxic[:, None]}
    names |= {"ensemble": SimpleNamespace(mean_scores=lambda: predicted), "end": np.inf}
    names |= {"other_scores": scores[["TF-IDF"]], "settings": kernel.Settings(), "show_comments": False}
    names = vars(kernel) | names
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel.plt, "show", lambda: kernel.plt.close())
        patch.setattr(kernel, "RESAMPLES", 40)
        for text in ("sizes = ", "bias = {", 'description["calibration"] =', "label_table = {}", "by_error = "):
            kernel.run_cell(kernel.number_of_cell(text), names)
    return names


def test_identities_with_enough_comments_of_both_classes_are_shown_beside_the_nine(evaluation):
    assert list(evaluation["bias"]["LSTM"].index) == [*kernel.IDENTITIES, "asian"]
    assert list(evaluation["bias"]["LSTM"].loc["asian", ["comments", "toxic"]]) == [20, 10]
    assert evaluation["worst_identity"] == "black"  # not male, of whom no AUC can be computed


def test_final_scores_lie_in_their_intervals_and_so_do_their_differences(evaluation):
    table, drawn = evaluation["final_scores"], evaluation["drawn"]
    assert table["final_score"].between(table["from"], table["to"]).all()
    above = table.at["LSTM", "final_score"] - table["final_score"]
    assert above.between(table["LSTM above from"], table["above to"]).all() and above["LSTM"] == 0
    draws = drawn["LSTM", "all", "final_score"] - drawn["TF-IDF", "all", "final_score"]
    ends = table.loc["TF-IDF", ["LSTM above from", "above to"]]
    assert list(ends) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=1e-12)


def test_label_aucs_are_those_of_scikit_learn_on_the_comments_whose_raters_were_asked(evaluation):
    table, train = evaluation["label_table"], evaluation["train"].rename(columns={"target": "toxicity"})
    assert list(table.index) == kernel.LABELS
    for label in table.index.drop("obscene"):
        known = train[label].notna()
        has_label = train[label][known] >= 0.5
        assert table.at[label, "comments"] == has_label.sum()
        scores = evaluation["folder_shares"][label][known]
        assert table.at[label, "auc"] == pytest.approx(roc_auc_score(has_label, scores), abs=1e-12)
    assert table.at["obscene", "comments"] == 0 and np.isnan(table.at["obscene", "auc"])


def test_the_surest_errors_come_first_and_last_and_are_about_the_worst_identity(evaluation):
    error = evaluation["folder_shares"]["toxicity"] - evaluation["train"]["target"]
    about = error[evaluation["holdout_mentioned"]["black"]].sort_values(ascending=False)
    assert list(evaluation["by_error"]["id"]) == [str(row) for row in about.index]


# --- the leaderboard ---


def test_the_leaderboard_is_the_score_of_the_rows_that_have_labels():
    toxic, scores, mentioned = comments()
    ids = pd.Series([f"{row:03}" for row in range(ROWS)], name="id")
    labelled = pd.concat([ids, pd.Series(toxic * 0.5, name="toxicity"), mentioned * 0.5], axis=1)[350:]
    labelled = labelled.replace({"male": {0.0: np.nan}, "id": {"599": "unknown"}})  # an empty share is no mention
    table = kernel.score_submissions(pd.concat([ids, scores], axis=1)[::-1], labelled)
    assert dict(table["rows"]) == {"TF-IDF": 249, "LSTM": 249}
    rows = slice(350, ROWS - 1)
    for model, column in scores.items():
        of_rows = toxic[rows], column.to_numpy()[rows]
        bias = pd.DataFrame([figures_from_outside(*of_rows, named.to_numpy()[rows]) for _, named in mentioned.items()])
        parts = [roc_auc_score(*of_rows), *(pmean(bias[name], -5) for name in kernel.BIAS_AUCS)]
        assert list(table.loc[model, kernel.SCORE_PARTS]) == pytest.approx([*parts, sum(parts) / 4], abs=1e-12)


def test_labels_of_other_comments_score_nothing():
    labelled = pd.DataFrame({"id": ["a"], "toxicity": [1.0], **dict.fromkeys(kernel.IDENTITIES, 0.0)})
    table = kernel.score_submissions(pd.DataFrame({"id": ["b"], "LSTM": [0.5]}), labelled)
    assert table.at["LSTM", "rows"] == 0 and table.loc["LSTM", kernel.SCORE_PARTS].isna().all()
