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
from scipy.stats import mannwhitneyu, pmean
from sklearn.metrics import roc_auc_score

SAMPLE = kernel.NOTEBOOK.parent / "tests" / "sample"
VECTORS = kernel.NOTEBOOK.parent / kernel.SAMPLE_VECTORS
BIASED = ["muslim", "black", "homosexual_gay_or_lesbian"]  # those that the sample ties to toxicity


def run_notebook(output_dir, **settings):
    """Run kernel.ipynb in its own folder with the given settings and return its report."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNEL_")}
    environment |= {f"KERNEL_{name.upper()}": str(value) for name, value in settings.items()}
    executed = output_dir / "executed.ipynb"
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", kernel.NOTEBOOK.name, executed]
    subprocess.run(
        command, cwd=kernel.NOTEBOOK.parent, env=environment | {"KERNEL_OUTPUT_DIR": str(output_dir)}, check=True
    )
    return json.loads((output_dir / "report.json").read_text())


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """Folder and report of a run with the default settings."""
    folder = tmp_path_factory.mktemp("first")
    report = run_notebook(folder)
    return folder, report


def test_the_lstm_beats_the_baseline_on_the_sample(first_run):
    _, report = first_run
    assert report["final_score"] == report["scores"]["LSTM"]["final_score"]
    assert report["final_score"] > report["scores"]["TF-IDF"]["final_score"]


def test_scores_move_little_from_one_identity_to_another(first_run):
    """In sentences that are the same but for the identity; where terms are not swapped in training, 0.25."""
    _, report = first_run
    moves = pd.DataFrame(report["moved_by_identity"]).drop("without")
    assert (moves.max() - moves.min()).max() < 0.2


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


def copy_of_sample(folder):
    """The sample without the labels of its test comments."""
    return shutil.copytree(SAMPLE, folder / "comments", ignore=shutil.ignore_patterns("*_expanded.csv"))


def test_a_second_run_without_the_labels_of_the_test_comments_writes_the_same_bytes(first_run, tmp_path):
    folder, _ = first_run
    before = kernel.NOTEBOOK.read_bytes()
    report = run_notebook(tmp_path, input_dir=copy_of_sample(tmp_path), vector_files=VECTORS, models=2)
    assert report["leaderboard"] == {}
    for name in ("submission.csv", "holdout_predictions.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    assert kernel.NOTEBOOK.read_bytes() == before


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


@pytest.fixture(scope="module")
def holdout(first_run):
    """toxic, the models' scores and the identities mentioned, from holdout_predictions.csv."""
    frame = pd.read_csv(first_run[0] / "holdout_predictions.csv", float_precision="round_trip")
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
            flagged = scores[model] > scores[model][~toxic].quantile(0.95)
            rate = flagged[mentioned[identity] & ~toxic].mean()
            assert report["false_positive_rates"][identity][model] == pytest.approx(rate, abs=1e-9)


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


def test_the_leaderboard_follows_from_the_submission(first_run):
    folder, report = first_run
    submission = pd.read_csv(folder / "submission.csv", float_precision="round_trip")
    for name, reported in report["leaderboard"].items():
        rows = pd.read_csv(SAMPLE / f"test_{name}_expanded.csv").merge(submission, on="id")
        _, parts = figures(rows["toxicity"] >= 0.5, rows["prediction"], rows[kernel.IDENTITIES] >= 0.5)
        assert reported == pytest.approx(parts | {"rows": len(rows)}, abs=1e-9)


def test_the_readmes_lines_score_new_text_in_a_fresh_process(first_run):
    folder, report = first_run
    readme = (kernel.NOTEBOOK.parent / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1].replace(
        'Path("models")', f"Path({str(folder)!r}) / 'models'"
    )
    lines += "\nimport sys; print(json.dumps(list(score(json.loads(sys.argv[1])))))"
    finished = subprocess.run(
        [sys.executable, "-c", lines, json.dumps([*report["asked"]])],
        cwd=kernel.NOTEBOOK.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    scores = json.loads(finished.stdout.splitlines()[-1])
    assert scores == pytest.approx([*report["asked"].values()], abs=1e-6)


def test_a_run_without_identity_labels_has_no_final_score_but_a_submission(tmp_path):
    folder = copy_of_sample(tmp_path)
    train = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    train[kernel.IDENTITIES] = ""
    train.drop(columns=kernel.OTHER_IDENTITIES).to_csv(folder / "train.csv", index=False)
    report = run_notebook(tmp_path, input_dir=folder, vector_files=VECTORS, models=1, epochs=1, cnn_epochs=0)
    check_schema(report)
    assert report["scores"]["LSTM"]["overall_auc"] > 0.5
    assert report["scores"]["LSTM"]["final_score"] is None
    assert report["worst_identity"] is None
    assert "enough comments" in report["more_than_chance"]
    assert len(pd.read_csv(tmp_path / "submission.csv")) == report["rows"]["scored"]


def test_a_run_compares_with_the_predictions_of_another_model(first_run, tmp_path):
    folder, first_report = first_run
    predictions = pd.read_csv(folder / "holdout_predictions.csv").rename(columns={"CNN": "prediction"})
    predictions.to_csv(tmp_path / "my model.csv", index=False)
    report = run_notebook(tmp_path, compare_files=tmp_path / "my model.csv", models=1, epochs=1, cnn_epochs=0)
    assert set(report["scores"]) == {"TF-IDF", "my model", "LSTM"}
    assert report["scores"]["my model"] == pytest.approx(first_report["scores"]["CNN"], abs=1e-6)


@pytest.mark.parametrize("epochs, fewest_models", [(1000, 1), (1, 2)])
def test_a_run_on_other_files_ends_inside_its_time_limit(tmp_path, epochs, fewest_models):
    """One model that can never be trained in full, or as many as fit."""
    limit, start = 75, time.monotonic()
    report = run_notebook(
        tmp_path,
        input_dir=copy_of_sample(tmp_path),
        vector_files=VECTORS,
        time_limit=limit,
        epochs=epochs,
        models=1000,
        seed=1,
    )
    assert report["stopped_because"] == "time limit"
    assert time.monotonic() - start < limit
    assert fewest_models <= report["models_averaged"] <= len(report["epochs_done"])
    assert max(report["epochs_done"]) <= epochs
    assert len(pd.read_csv(tmp_path / "submission.csv")) == report["rows"]["scored"]
