"""Whole runs of the notebook on the sample, as `make run` does them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import kernel
import numpy as np
import pandas as pd
import pytest
from runs import SAMPLE, VECTORS, check_submission, copy_of_sample, environment_of, kill, run_notebook, start_notebook
from scipy.stats import mannwhitneyu, pmean
from sklearn.metrics import roc_auc_score
from test_on_kaggle import PUSHED, make

SMALL = {"models": 2, "epochs": 1, "lstm_units": 8}
BIASED = ["muslim", "black", "homosexual_gay_or_lesbian"]  # those that the sample ties to toxicity


@pytest.fixture(scope="session")
def first_run():
    """Folder and report of a run with the default settings: nbval's, where that has run before."""
    folder = Path(os.environ["KERNEL_OUTPUT_DIR"])
    if not (folder / "report.json").exists():
        run_notebook(folder)
    return folder, json.loads((folder / "report.json").read_text())


@pytest.fixture(scope="module")
def attached(tmp_path_factory):
    """What stands for /kaggle/input: the comments where Kaggle put them once, the vectors where it puts them now."""
    folder = tmp_path_factory.mktemp("input")
    copy_of_sample(folder / kernel.COMPETITION, rows=1501)
    for name, dataset in kernel.PUBLIC_VECTORS.items():
        (folder / "datasets" / dataset).mkdir(parents=True)
        shutil.copy(VECTORS, folder / "datasets" / dataset / name)
    return folder


@pytest.fixture(scope="module")
def small(attached):
    """Settings of a run of small networks on what is attached."""
    vectors = [attached / "datasets" / dataset / name for name, dataset in kernel.PUBLIC_VECTORS.items()]
    files = {"input_dir": attached / kernel.COMPETITION, "vector_files": ":".join(map(str, vectors))}
    return files | SMALL


@pytest.fixture(scope="module")
def pushed_run(attached, tmp_path_factory):
    """Folder of a run of the notebook as Kaggle's server received it, in an empty folder, offline."""
    folder = tmp_path_factory.mktemp("pushed")
    pushed = make("push", folder, {"SaveKernel": PUSHED}).request["SaveKernel"]["text"]
    (folder / "pushed.ipynb").write_text(pushed, encoding="utf-8")
    empty = tmp_path_factory.mktemp("working")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("run_pushed.py"), folder / "pushed.ipynb", attached],
        cwd=empty,
        env=environment_of(SMALL) | {"TMPDIR": str(empty), "HOME": str(empty)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return empty


@pytest.fixture(scope="module")
def second_run(pushed_run, small, tmp_path_factory):
    """A run with two workers and other models to compare with: one of held-out comments, one of test comments."""
    folder = tmp_path_factory.mktemp("second")
    predictions = pd.read_csv(pushed_run / "holdout_predictions.csv").rename(columns={"CNN": "prediction"})
    predictions.to_csv(folder / "my model.csv", index=False)
    shutil.copy(pushed_run / "submission.csv", folder / "my submission.csv")
    comments = shutil.copytree(small["input_dir"], folder / "comments")
    shutil.copy(SAMPLE / "test_public_expanded.csv", comments)
    compared = f"{folder / 'my model.csv'}:{folder / 'my submission.csv'}"
    before = kernel.NOTEBOOK.read_bytes()
    report = run_notebook(folder, **small | {"input_dir": comments, "workers": 2, "compare_files": compared})
    assert kernel.NOTEBOOK.read_bytes() == before
    return folder, report


def test_the_lstm_beats_the_baseline_on_the_sample(first_run):
    _, report = first_run
    assert report["final_score"] == report["scores"]["LSTM"]["final_score"]
    assert report["final_score"] > report["scores"]["TF-IDF"]["final_score"]


def test_scores_move_little_from_one_identity_to_another(first_run):
    """In sentences that are the same but for the identity."""
    _, report = first_run
    asked = pd.DataFrame(report["terms"]["asked"]).T.query("kind == 'listed'")
    assert asked["harmless"].max() - asked["harmless"].min() < 0.2
    assert (asked["harmless"] < asked["toxic"]).all()


def test_the_figures_of_terms_follow_from_the_sentences(first_run):
    folder, report = first_run
    sentences = pd.read_csv(folder / "sentences.csv", float_precision="round_trip")
    table, _ = figures(sentences["toxic"], sentences["score"], pd.get_dummies(sentences["term"], dtype=bool))
    table = table[list(kernel.BIAS_AUCS)].join(sentences.groupby(["term", "toxic"])["score"].mean().unstack())
    reported = pd.DataFrame(report["terms"]["asked"]).T.rename(columns={"harmless": False, "toxic": True})
    assert set(reported.index) == set(table.index)
    for term, row in table.iterrows():
        assert reported.loc[term, list(row.index)].to_dict() == pytest.approx(row.to_dict(), abs=1e-9)
    for kind, of_kind in report["terms"]["by_kind"].items():
        lowest = table[reported["kind"] == kind][list(kernel.BIAS_AUCS)].min(axis=1)
        assert of_kind["lowest_auc"] == pytest.approx(lowest.min(), abs=1e-9)
        assert of_kind["lowest_auc"] == pytest.approx(lowest[of_kind["term"]], abs=1e-9)


def test_the_sample_is_not_trivial_and_shows_the_bias(first_run):
    _, report = first_run
    assert 0.85 <= report["scores"]["TF-IDF"]["overall_auc"] <= 0.96
    bpsn = pd.DataFrame(report["identities"]["TF-IDF"]).T["bpsn_auc"]
    assert bpsn[BIASED].mean() < bpsn.drop(BIASED).mean() - 0.02


def test_the_report_is_complete(first_run):
    _, report = first_run
    assert report["rows"]["fitted"] + report["rows"]["held_out"] == report["rows"]["read"]
    assert report["rows"]["scored"] == len(pd.read_csv(SAMPLE / "test.csv"))
    assert set(report["identities"]["LSTM"]) == set(kernel.IDENTITIES)
    assert max(report["trained_on"].values()) <= report["rows"]["fitted"]
    assert set(report["scores"]) == {"TF-IDF", "CNN", "LSTM"}
    assert set(report["too_few_comments"]) == set(kernel.OTHER_IDENTITIES)
    assert set(report["leaderboard"]) == {"public", "private"}
    assert report["stopped_because"] == "all models done"
    assert report["epochs_done"] == [kernel.Settings().epochs] * kernel.SAMPLE_MODELS
    assert [len(epochs) for epochs in report["epochs"].values()] == report["epochs_done"]
    assert report["seed"] == kernel.Settings().seed
    assert 0.9 < report["vector_coverage"]["running_text"] <= 1
    assert {"Comments", "Tokens", "Vectors", "Training", "Submission"} <= set(report["seconds"])
    assert report["versions"]["keras"] == kernel.keras.__version__


def test_the_submission_is_what_kaggle_expects(first_run):
    folder, _ = first_run
    submission = pd.read_csv(folder / "submission.csv")
    assert list(submission.columns) == ["id", "prediction"]
    assert submission["id"].equals(pd.read_csv(SAMPLE / "sample_submission.csv")["id"])
    assert submission["prediction"].between(0, 1).all()
    assert submission["prediction"].nunique() > 100


def test_the_stored_outputs_tell_the_truth(first_run):
    _, report = first_run
    shown = re.findall(r"Final score on the holdout: (0\.\d{4})", json.dumps(kernel.CELLS))
    assert float(shown[0]) == pytest.approx(report["final_score"], abs=0.02)


def test_what_was_pushed_gives_a_report_of_the_comments_that_kaggle_attached(pushed_run):
    report = json.loads((pushed_run / "report.json").read_text())
    assert report["rows"]["read"] == 1501
    check_schema(report)


def test_the_clone_trains_what_was_pushed_and_another_model_joins_the_comparison(pushed_run, second_run):
    """With two workers only the first model is that of one: of the second, one would learn the test comments."""
    files = [folder / "holdout_predictions.csv" for folder in (pushed_run, second_run[0])]
    first, second = (pd.read_csv(path, dtype=str) for path in files)
    others = [name for name in first if name in ("LSTM", "model 2", "student") or name.endswith(" score")]
    pd.testing.assert_frame_equal(second.drop(columns=["my model", *others]), first.drop(columns=others))
    scores = second_run[1]["scores"]
    assert set(scores) == {"TF-IDF", "CNN", "my model", "LSTM"}
    assert scores["my model"] == pytest.approx(scores["CNN"], abs=1e-6)


def test_predictions_of_test_comments_are_scored_on_their_labels(second_run):
    folder, report = second_run
    labelled = pd.read_csv(SAMPLE / "test_public_expanded.csv", dtype={"id": str})
    reported = {"submission.csv": report["leaderboard"], **report["leaderboard_of_others"]}
    assert set(reported) == {"submission.csv", "my submission"}
    for name, of_leaderboards in reported.items():
        assert set(of_leaderboards) == {"public"}
        path = (folder / name).with_suffix(".csv")
        rows = labelled.merge(pd.read_csv(path, float_precision="round_trip", dtype={"id": str}), on="id")
        _, parts = figures(rows["toxicity"] >= 0.5, rows["prediction"], rows[kernel.IDENTITIES] >= 0.5)
        assert of_leaderboards["public"] == pytest.approx({"rows": len(rows), **parts}, abs=1e-9)


def check_schema(report):
    schema = json.loads((Path(__file__).parent / "report.schema.json").read_text())
    jsonschema.validate(report, schema, jsonschema.Draft202012Validator)


def test_the_report_keeps_to_its_schema(first_run):
    check_schema(first_run[1])


def auc(toxic, scores, rows):
    return roc_auc_score(toxic[rows], scores[rows])


def equality_gap(scores, subgroup, background):
    statistic = mannwhitneyu(scores[background], scores[subgroup]).statistic
    return 0.5 - statistic / (background.sum() * subgroup.sum())


def figures(toxic, scores, mentioned):
    """All figures of a model: DataFrame (identities, 5) and the parts of its score, from scikit-learn and scipy."""
    rows = {
        identity: {
            "subgroup_auc": auc(toxic, scores, with_it),
            "bpsn_auc": auc(toxic, scores, with_it != toxic),
            "bnsp_auc": auc(toxic, scores, with_it == toxic),
            "positive_aeg": equality_gap(scores, with_it & toxic, ~with_it & toxic),
            "negative_aeg": equality_gap(scores, with_it & ~toxic, ~with_it & ~toxic),
        }
        for identity, with_it in mentioned.items()
    }
    table = pd.DataFrame(rows).T
    parts = {"overall_auc": roc_auc_score(toxic, scores)}
    parts |= {name: pmean(table[name], -5) for name in ("subgroup_auc", "bpsn_auc", "bnsp_auc")}
    return table, parts | {"final_score": sum(parts.values()) / 4}


def read_predictions(folder):
    return pd.read_csv(folder / "holdout_predictions.csv", float_precision="round_trip", dtype={"id": str})


@pytest.fixture(scope="module")
def holdout(first_run):
    """toxic, the models' scores and the identities mentioned, from holdout_predictions.csv."""
    frame = read_predictions(first_run[0])
    return frame["toxic"] == 1, frame[["TF-IDF", "CNN", "LSTM"]], frame[kernel.IDENTITIES] == 1


def test_every_figure_follows_from_the_holdout_predictions(first_run, holdout):
    _, report = first_run
    toxic, scores, mentioned = holdout
    for model in scores:
        table, parts = figures(toxic, scores[model], mentioned)
        assert report["scores"][model] == pytest.approx(parts, abs=1e-9)
        for identity in mentioned:
            reported = report["identities"][model][identity]
            assert {name: reported[name] for name in table} == pytest.approx(dict(table.loc[identity]), abs=1e-9)
            assert reported["comments"] == mentioned[identity].sum()
            assert reported["toxic"] == (mentioned[identity] & toxic).sum()
            assert reported["toxic_share"] == pytest.approx(toxic[mentioned[identity]].mean(), abs=1e-9)


def test_the_figures_of_labels_and_networks_follow_from_the_holdout_predictions(first_run, holdout):
    folder, report = first_run
    frame, (toxic, _, mentioned) = read_predictions(folder), holdout
    for label, figures_of_label in report["labels"]["figures"].items():
        has_label = frame[f"{label} share"] >= 0.5
        assert figures_of_label["comments"] == has_label.sum()
        if not has_label.any():
            assert figures_of_label["auc"] is None
            continue
        low, high = report["labels"]["intervals"][label]["auc"]
        assert low <= figures_of_label["auc"] <= high
        assert figures_of_label["auc"] == pytest.approx(roc_auc_score(has_label, frame[f"{label} score"]), abs=1e-9)
    models = [figures(toxic, frame[f"model {number}"], mentioned)[1]["final_score"] for number in (1, 2)]
    student = figures(toxic, frame["student"], mentioned)[1]["final_score"]
    expected = {"student": student, "best": max(models), "mean": np.mean(models), "average": report["final_score"]}
    assert report["networks"]["figures"] == pytest.approx(expected, abs=1e-9)
    assert report["networks"]["best"] == f"model {1 + np.argmax(models)}"
    assert report["networks"]["scored_by"] == ("student" if student > max(models) else "all")
    scored_by = "student" if student > max(models) else "LSTM"
    pd.testing.assert_series_equal(frame[scored_by].rank(), frame["toxicity score"].rank(), check_names=False)
    assert set(report["networks"]["comments_a_second_on_one_core"]) == {*json_of(folder)["networks"]}


def json_of(folder):
    return json.loads((folder / "models" / "models.json").read_text(encoding="utf-8"))


def test_thresholds_follow_from_the_half_of_the_holdout_that_they_were_not_found_on(first_run):
    folder, report = first_run
    frame = read_predictions(folder)
    for rule, threshold in report["thresholds"]["at"].items():
        name, wanted = rule.split()
        first, second = frame[frame["measured"] == 0], frame[frame["measured"] == 1]
        flagged = first["toxicity score"] >= threshold
        if name == "flags":
            assert flagged.mean() == pytest.approx(float(wanted.rstrip("%")) / 100, abs=0.01)
        else:
            assert first["toxic"][flagged].mean() >= float(wanted)
        flagged, toxic = second["toxicity score"] >= threshold, second["toxic"] == 1
        expected = {
            "flagged": flagged.mean(),
            "precision": toxic[flagged].mean(),
            "found": flagged[toxic].mean(),
            "false_positives": flagged[~toxic].mean(),
            **{name: flagged[~toxic & (second[name] == 1)].mean() for name in kernel.IDENTITIES},
        }
        reported = pd.Series(report["thresholds"]["figures"][rule], dtype=float)  # None, if nothing is flagged, is NaN
        assert reported.to_dict() == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_scores_of_the_folder_are_the_shares_of_raters(first_run):
    """On the half that the calibration was not fitted on, as far as its noise lets one see."""
    frame = read_predictions(first_run[0]).query("measured == 1")
    error = frame["toxicity score"] - frame["toxicity share"]
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(frame))
    raw = frame["student" if first_run[1]["networks"]["scored_by"] == "student" else "LSTM"]
    assert (error**2).mean() <= ((raw - frame["toxicity share"]) ** 2).mean()


def test_the_intervals_follow_from_the_holdout_predictions(first_run, holdout):
    _, report = first_run
    toxic, scores, mentioned = holdout
    generator = np.random.default_rng(report["bootstrap"]["seed"])
    drawn = []
    for _ in range(report["bootstrap"]["resamples"]):
        rows = generator.integers(len(toxic), size=len(toxic))
        drawn.append([auc(toxic.to_numpy(), scores[model].to_numpy(), rows) for model in ("LSTM", "TF-IDF")])
    lstm, baseline = np.array(drawn).T
    expected = list(np.quantile(lstm, [0.025, 0.975]))
    assert report["intervals"]["LSTM"]["all"]["overall_auc"] == pytest.approx(expected, abs=1e-9)
    expected = list(np.quantile(lstm - baseline, [0.025, 0.975]))
    assert report["intervals_above"]["TF-IDF"]["all"]["overall_auc"] == pytest.approx(expected, abs=1e-9)


def gaps_of(scores, toxic, mentioned):
    """Equality gaps among toxic and among harmless comments, (2, identities); NaN where a group is empty."""
    gaps = np.full((2, mentioned.shape[1]), np.nan)
    for kind, place in np.ndindex(gaps.shape):
        rows, with_it = toxic == (kind == 0), mentioned[:, place]
        if (rows & with_it).any():
            gaps[kind, place] = equality_gap(scores, rows & with_it, rows & ~with_it)
    return gaps


def test_whom_the_models_treat_worse_follows_from_the_holdout_predictions(first_run, holdout):
    """About whom the LSTM errs most, and whom it treats unlike the others by more than chance."""
    report, (toxic, scores, mentioned) = first_run[1], holdout
    common = [name for name, rows in mentioned.items() if min(sum(rows & toxic), sum(rows & ~toxic)) >= 10]
    table, _ = figures(toxic, scores["LSTM"], mentioned)
    assert report["worst_identity"] == table.loc[common, list(kernel.BIAS_AUCS)].min(axis=1).idxmin()
    generator, number = np.random.default_rng(report["bootstrap"]["seed"]), report["bootstrap"]["resamples"]
    draws = [generator.integers(len(toxic), size=len(toxic)) for _ in range(number)]
    tables = toxic.to_numpy(), mentioned[common].to_numpy()
    for model in ("TF-IDF", "LSTM"):
        gaps = [gaps_of(scores[model].to_numpy()[rows], *(of[rows] for of in tables)) for rows in draws]
        low, high = np.nanquantile(gaps, [0.025, 0.975], axis=0)  # (kinds, identities)
        for kind, figure in enumerate(("positive_aeg", "negative_aeg")):
            reported = [report["intervals"][model][identity][figure] for identity in common]
            assert np.allclose(reported, np.transpose([low[kind], high[kind]]), rtol=0, atol=1e-9)
    found = []  # of the LSTM
    for kind, comments in enumerate(("toxic", "harmless")):
        for place, differs in (("above", low[kind] > 0), ("below", high[kind] < 0)):
            names = ", ".join(np.array(common)[differs])
            found += [f"{comments} comments that mention {names} {place} the others"] if names else []
    assert f"the LSTM scores {'; '.join(found) or 'none unlike the others'}, by more" in report["more_than_chance"]


def test_the_surest_errors_follow_from_the_holdout_predictions(first_run):
    folder, report = first_run
    frame = read_predictions(folder)
    about = frame[frame[report["worst_identity"]] == 1]
    errors = report["surest_errors"]
    assert errors["false positives"] == list(about[about["toxic"] == 0].nlargest(5, "LSTM")["id"])
    assert errors["false negatives"] == list(about[about["toxic"] == 1].nsmallest(5, "LSTM")["id"])


def test_the_folder_gives_the_scores_that_its_thresholds_are_for(first_run):
    folder, _ = first_run
    texts = pd.read_csv(SAMPLE / "train.csv", dtype=str, keep_default_na=False).set_index("id")["comment_text"]
    frame = read_predictions(folder)
    frame = frame[[len(kernel.cut(texts[id])) <= 200 for id in frame["id"]]].head(60)  # longer ones score in parts
    for label, scores in kernel.load(folder / "models")([texts[id] for id in frame["id"]]).items():
        assert scores == pytest.approx([*frame[f"{label} score"]], abs=1e-4)


def test_the_model_card_says_what_the_report_does(first_run):
    folder, report = first_run
    card = (folder / "models" / "README.md").read_text(encoding="utf-8")
    others = {model: parts["final_score"] for model, parts in report["scores"].items() if model != "LSTM"}
    best = max(others, key=others.get)
    surely = report["intervals_above"][best]["all"]["final_score"][0] > 0
    assert f"{best}, has {others[best]:.4f}; the LSTM is {'' if surely else 'not '}better by more" in card
    worst = report["identities"]["LSTM"][report["worst_identity"]]
    weakest = min(kernel.BIAS_AUCS, key=worst.get)
    assert f"about {report['worst_identity']}: {weakest} {worst[weakest]:.4f} [" in card
    for rule, of_rule in report["thresholds"]["figures"].items():
        cells = next(line for line in card.splitlines() if line.startswith(f"| {rule} |")).strip("| ").split(" | ")
        expected = [of_rule[name] for name in ("flagged", "precision", "found", "false_positives")]
        assert [cell.split()[0] for cell in cells[2:]] == ["–" if of is None else f"{of:.4f}" for of in expected]


def test_the_leaderboard_follows_from_the_submission(first_run):
    folder, report = first_run
    submission = pd.read_csv(folder / "submission.csv", float_precision="round_trip")
    for name, reported in report["leaderboard"].items():
        rows = pd.read_csv(SAMPLE / f"test_{name}_expanded.csv").merge(submission, on="id")
        _, parts = figures(rows["toxicity"] >= 0.5, rows["prediction"], rows[kernel.IDENTITIES] >= 0.5)
        assert reported == pytest.approx(parts | {"rows": len(rows)}, abs=1e-9)


def test_the_readmes_lines_score_new_text_in_a_fresh_process(first_run, tmp_path):
    folder, _ = first_run
    shutil.copytree(folder / "models", tmp_path / "models")
    sentences = pd.read_csv(folder / "sentences.csv", float_precision="round_trip").head(20)
    readme = (kernel.NOTEBOOK.parent / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]
    lines += "\nimport json, sys; print(json.dumps(score(json.loads(sys.argv[1]))))"
    finished = subprocess.run(
        [sys.executable, "-c", lines, json.dumps([*sentences["text"]])],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": "models"},
        capture_output=True,
        text=True,
        check=True,
    )
    scores = json.loads(finished.stdout.splitlines()[-1])
    assert list(scores) == kernel.LABELS
    assert scores["toxicity"] == pytest.approx([*sentences["score"]], abs=1e-6)


def test_make_score_writes_the_scores_of_a_csv(first_run, tmp_path):
    folder, _ = first_run
    sentences = pd.read_csv(folder / "sentences.csv").head(20).rename(columns={"toxic": "is toxic"})
    sentences.rename(columns={"text": "comment_text"}).to_csv(tmp_path / "my comments.csv", index=False)
    command = ["make", "-o", ".venv/installed", "score", f"INPUT={tmp_path / 'my comments.csv'}"]
    environment = os.environ | {"KERNEL_OUTPUT_DIR": str(folder)}
    command.append(f"VENV_PYTHON={sys.executable}")
    done = subprocess.run(command, cwd=kernel.NOTEBOOK.parent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scores = pd.read_csv(folder / "scores.csv")
    assert list(scores)[: len(sentences.columns)] == list(sentences.rename(columns={"text": "comment_text"}))
    assert scores["toxicity"].to_numpy() == pytest.approx(sentences["score"].to_numpy(), rel=1e-3)


def test_identities_that_no_rater_was_asked_about_are_found_by_their_terms(tmp_path):
    folder = copy_of_sample(tmp_path / "comments", rows=1501)
    train = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    train[kernel.IDENTITIES] = ""
    train.drop(columns=kernel.OTHER_IDENTITIES).to_csv(folder / "train.csv", index=False)
    settings = {"models": 1, "epochs": 2, "lstm_units": 8, "cnn_epochs": 0}
    report = run_notebook(tmp_path, input_dir=folder, vector_files=VECTORS, **settings)
    check_schema(report)
    assert report["found_by_terms"] == kernel.IDENTITIES
    assert report["leaderboard"] == {}  # there are no labels of test comments
    assert set(report["networks"]["figures"]) == {"best", "mean", "average"}  # one model has no student
    texts = train.set_index("id")["comment_text"]
    predictions = pd.read_csv(tmp_path / "holdout_predictions.csv", dtype={"id": str}).set_index("id")
    for identity in ("muslim", "white"):
        terms = set(" ".join(kernel.IDENTITY_TERMS[identity]).split())
        named = [bool(terms & set(re.findall(r"\w+", texts[id].lower()))) for id in predictions.index]
        assert sum(named) and named == list(predictions[identity] == 1)
        assert report["identities"]["LSTM"][identity]["comments"] == sum(named)
    assert "No rater was asked about male, female" in (tmp_path / "models" / "README.md").read_text()
    check_submission(tmp_path, folder)


def test_a_run_that_is_killed_leaves_a_submission_and_goes_on_where_it_ended(pushed_run, small, tmp_path):
    process, models = start_notebook(tmp_path, **small), tmp_path / "models"
    while not (models / "models.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    kill(process)
    check_submission(tmp_path, small["input_dir"])
    assert 0 < kernel.load(models)("a comment")["toxicity"] < 1

    saved = {path: path.stat().st_mtime_ns for path in models.glob("model_*.npz")}
    report = run_notebook(tmp_path, **small)
    assert report["models_averaged"] == 2 and saved
    assert {path: path.stat().st_mtime_ns for path in saved} == saved  # not trained again
    assert (tmp_path / "submission.csv").read_bytes() == (pushed_run / "submission.csv").read_bytes()
