"""Whole runs of the notebook on the sample, as `make run` does them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import kernel
import pandas as pd
import pytest

SAMPLE = kernel.NOTEBOOK.parent / "tests" / "sample"
BIASED = ["muslim", "black", "homosexual_gay_or_lesbian"]  # those that the sample ties to toxicity


def run_notebook(output_dir, **settings):
    """Run kernel.ipynb in its own folder with the given settings; return its report and its seconds from outside."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNEL_")}
    environment |= {f"KERNEL_{name.upper()}": str(value) for name, value in settings.items()}
    executed = output_dir / "executed.ipynb"
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", kernel.NOTEBOOK.name, executed]
    start = time.monotonic()
    subprocess.run(
        command, cwd=kernel.NOTEBOOK.parent, env=environment | {"KERNEL_OUTPUT_DIR": str(output_dir)}, check=True
    )
    return json.loads((output_dir / "report.json").read_text()), time.monotonic() - start


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """Folder and report of a run with the default settings."""
    folder = tmp_path_factory.mktemp("first")
    report, _ = run_notebook(folder)
    return folder, report


def test_the_lstm_beats_the_baseline_on_the_sample(first_run):
    _, report = first_run
    assert report["scores"]["LSTM"]["final_score"] > report["scores"]["TF-IDF"]["final_score"]
    assert report["final_score"] == report["scores"]["LSTM"]["final_score"]


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
    assert set(report["identities"]["LSTM"]["male"]) == {"comments", "toxic", *kernel.BIAS_AUCS}
    assert report["stopped_because"] == "all models done"
    assert report["epochs_done"] == [
        share * kernel.Settings().epochs for share, _ in kernel.KINDS[: kernel.SAMPLE_MODELS]
    ]
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
    shown = re.findall(r"Final score on the holdout: (0\.\d{4})", json.dumps(kernel.CELLS[-2]["outputs"]))
    assert float(shown[0]) == pytest.approx(report["final_score"], abs=0.02)


def test_a_second_run_writes_the_same_bytes(first_run, tmp_path):
    folder, _ = first_run
    before = kernel.NOTEBOOK.read_bytes()
    run_notebook(tmp_path)
    assert (tmp_path / "submission.csv").read_bytes() == (folder / "submission.csv").read_bytes()
    assert kernel.NOTEBOOK.read_bytes() == before


@pytest.mark.parametrize("epochs, fewest_models", [(1000, 1), (1, 2)])
def test_a_run_on_other_files_ends_inside_its_time_limit(tmp_path, epochs, fewest_models):
    """One model that can never be trained in full, or as many as fit."""
    shutil.copytree(SAMPLE, tmp_path / "comments")
    limit = 75
    report, _ = run_notebook(
        tmp_path,
        input_dir=tmp_path / "comments",
        vector_files=Path("embeddings/sample.vec").resolve(),
        time_limit=limit,
        epochs=epochs,
        models=1000,
        seed=1,
    )
    assert report["stopped_because"] == "time limit"
    assert sum(report["seconds"].values()) < limit
    assert fewest_models <= report["models_averaged"] <= len(report["epochs_done"])
    assert max(report["epochs_done"]) <= epochs
    assert len(pd.read_csv(tmp_path / "submission.csv")) == report["rows"]["scored"]
