"""Whole runs of the notebook on the sample, as `make run` does them, and what they leave."""

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
from runs import (
    SAMPLE,
    VECTORS,
    check_submission,
    copy_of_sample,
    environment_of,
    kill,
    run_notebook,
    start_notebook,
)
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
    """What stands for /kaggle/input: comments where Kaggle put them, vectors where it does now."""
    folder = tmp_path_factory.mktemp("input")
    copy_of_sample(folder / kernel.COMPETITION, rows=1501)
    for name, dataset in kernel.PUBLIC_VECTORS.items():
        (folder / "datasets" / dataset).mkdir(parents=True)
        shutil.copy(VECTORS, folder / "datasets" / dataset / name)
    return folder


@pytest.fixture(scope="module")
def small(attached):
    """Settings of a run of small networks on what is attached."""
    vectors = [
        attached / "datasets" / dataset / name for name, dataset in kernel.PUBLIC_VECTORS.items()
    ]
    files = {
        "input_dir": attached / kernel.COMPETITION,
        "vector_files": ":".join(map(str, vectors)),
    }
    return files | SMALL


@pytest.fixture(scope="module")
def pushed_run(attached, tmp_path_factory):
    """Folder of a run of the notebook as Kaggle's server got it, in an empty folder, offline."""
    folder = tmp_path_factory.mktemp("pushed")
    pushed = make("push", folder, {"SaveKernel": PUSHED}).request["SaveKernel"]["text"]
    (folder / "pushed.ipynb").write_text(pushed, encoding="utf-8")
    empty = tmp_path_factory.mktemp("working")
    done = subprocess.run(
        [
            sys.executable,
            Path(__file__).with_name("run_pushed.py"),
            folder / "pushed.ipynb",
            attached,
        ],
        cwd=empty,
        env=environment_of(SMALL) | {"TMPDIR": str(empty), "HOME": str(empty)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return empty


@pytest.fixture(scope="module")
def killed_run(small, tmp_path_factory):
    """Folder of a run that was killed when its first model was there, and goes on, with others to
    compare with: one of held-out and one of test comments, whose labels are there, too.

    What it left at the kill is in `at kill`.
    """
    folder = tmp_path_factory.mktemp("killed")
    comments = shutil.copytree(small["input_dir"], folder / "comments")
    shutil.copy(SAMPLE / "test_public_expanded.csv", comments)
    settings = small | {"input_dir": comments}
    kill_when(start_notebook(folder, **settings), lambda: [*folder.glob("models/model_1_*.npz")])
    shutil.copytree(
        folder, folder / "at kill", ignore=shutil.ignore_patterns("comments", "at kill")
    )
    texts = pd.read_csv(comments / "train.csv", dtype={"id": str}, keep_default_na=False)
    of_length = texts.assign(prediction=texts["comment_text"].str.len() / 1000)[
        ["id", "prediction"]
    ]
    of_length.to_csv(folder / "my model.csv", index=False)
    shutil.copy(folder / "submission.csv", folder / "my submission.csv")
    compared = f"{folder / 'my model.csv'}:{folder / 'my submission.csv'}"
    before = kernel.NOTEBOOK.read_bytes()
    run_notebook(folder, **settings | {"compare_files": compared, "show_comments": "yes"})
    assert kernel.NOTEBOOK.read_bytes() == before
    return folder


def kill_when(process, is_so):
    """Kill a run as soon as something is so."""
    while not is_so():
        assert process.poll() is None
        time.sleep(0.05)
    kill(process)


@pytest.fixture(scope="module", params=["first", "killed"])
def finished(request):
    """Folder, report, and holdout_predictions.csv of a run."""
    folder = request.getfixturevalue(f"{request.param}_run")
    folder = folder[0] if request.param == "first" else folder
    return folder, json.loads((folder / "report.json").read_text()), read_predictions(folder)


def read_predictions(folder):
    return pd.read_csv(
        folder / "holdout_predictions.csv", float_precision="round_trip", dtype={"id": str}
    )


def test_the_lstm_beats_the_baseline_on_the_sample(first_run):
    scores = first_run[1]["scores"]
    assert (
        first_run[1]["final_score"]
        == scores["LSTM"]["final_score"]
        > scores["TF-IDF"]["final_score"] + 0.02
    )


def test_the_sample_is_not_trivial_and_shows_the_bias_that_the_lstm_has_less_of(first_run):
    _, report = first_run
    assert 0.85 <= report["scores"]["TF-IDF"]["overall_auc"] <= 0.96
    bpsn = {model: pd.DataFrame(of).T["bpsn_auc"] for model, of in report["identities"].items()}
    below = {model: of.drop(BIASED).mean() - of[BIASED].mean() for model, of in bpsn.items()}
    assert (
        below["TF-IDF"] > 0.05 and bpsn["TF-IDF"][BIASED].max() < bpsn["TF-IDF"].drop(BIASED).min()
    )
    assert below["LSTM"] < below["TF-IDF"] / 2


def test_the_first_sentences_are_understood(first_run):
    score = kernel.load(first_run[0] / "models")
    assert score("Thank you, that was a kind answer")["toxicity"] < 0.15
    assert score("I am a gay woman")["toxicity"] < 0.15
    assert score("You are an idiot and a liar")["toxicity"] > 0.8


def test_made_up_sentences_are_ranked_by_what_they_say_and_not_of_whom(first_run):
    report = first_run[1]
    assert [*report["kinds_of_terms"]] == ["listed", "not listed"]
    assert all(kind["lowest_auc"] > 0.9 for kind in report["kinds_of_terms"].values())
    asked = pd.DataFrame(report["terms"]).T
    assert (asked["harmless"] < asked["toxic"]).all()
    assert asked["harmless"].max() - asked["harmless"].min() < 0.2


def test_the_report_is_complete_and_keeps_to_its_schema(finished):
    folder, report, frame = finished
    schema = json.loads((Path(__file__).parent / "report.schema.json").read_text())
    jsonschema.validate(report, schema, jsonschema.Draft202012Validator)
    assert report["stopped_because"] == "all models done"
    assert [*report["networks"]] == [*report["losses"]] == ["model_1", "model_2"]
    assert report["rows"]["held_out"] == len(frame)
    assert 0.9 < report["vector_coverage"]["running_text"] <= 1
    assert report["versions"]["keras"] == kernel.keras.__version__


def test_the_submission_is_what_kaggle_expects(first_run):
    check_submission(first_run[0], SAMPLE)
    assert pd.read_csv(first_run[0] / "submission.csv")["prediction"].nunique() > 100


def test_the_stored_outputs_tell_the_truth(first_run):
    shown = re.findall(r"Final score on the holdout: (0\.\d{4})", json.dumps(kernel.CELLS))
    assert float(shown[0]) == pytest.approx(first_run[1]["final_score"], abs=0.02)


def auc(toxic, scores, rows):
    return roc_auc_score(toxic[rows], scores[rows])


def equality_gap(scores, subgroup, background):
    statistic = mannwhitneyu(scores[background], scores[subgroup]).statistic
    return 0.5 - statistic / (background.sum() * subgroup.sum())


def expected_figures(toxic, scores, mentioned):
    """All figures of a model, from scikit-learn and scipy: DataFrame (identities, 5), and the parts
    of its score.
    """
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


def test_every_figure_follows_from_the_holdout_predictions(finished):
    folder, report, frame = finished
    toxic, mentioned = frame["toxic"] == 1, frame[kernel.IDENTITIES] == 1
    for model, parts in report["scores"].items():
        table, expected = expected_figures(toxic, frame[model], mentioned)
        assert parts == pytest.approx(expected, abs=1e-9)
        for identity, row in table.iterrows():
            sizes = {
                "comments": mentioned[identity].sum(),
                "toxic": (mentioned[identity] & toxic).sum(),
            }
            assert report["identities"][model][identity] == pytest.approx(
                dict(row) | sizes, abs=1e-9
            )
    for number, (name, scores) in enumerate(report["networks"].items(), 1):
        average = frame[[*report["networks"]][:number]].mean(axis=1)
        for kind, of in {"each network": frame[name], "average of the first": average}.items():
            expected = expected_figures(toxic, of, mentioned)[1]["final_score"]
            assert scores[kind] == pytest.approx(expected, abs=1e-9)
    lowest = pd.DataFrame(report["identities"]["LSTM"]).T
    enough = (lowest["toxic"] >= 10) & (lowest["comments"] - lowest["toxic"] >= 10)
    aucs = (
        lowest.loc[enough & lowest.index.isin(kernel.IDENTITIES), kernel.BIAS_AUCS]
        .astype(float)
        .min(axis=1)
    )
    assert report["worst_identity"] == (aucs.idxmin() if len(aucs) else "none")


def test_the_figures_of_labels_and_thresholds_follow_from_the_holdout_predictions(finished):
    _, report, frame = finished
    for label, figures in report["labels"].items():
        has_label = frame[f"{label} share"] >= 0.5
        assert figures["comments"] == has_label.sum()
        expected = roc_auc_score(has_label, frame[f"{label} score"]) if has_label.any() else None
        assert figures["auc"] == (expected and pytest.approx(expected, abs=1e-9))
    first, second = (frame[frame["measured"] == half] for half in (0, 1))
    assert {*report["thresholds"]} == {"flags 5%", "precision 70%", "precision 90%"}
    for rule, figures in report["thresholds"].items():
        name, wanted = rule.split()
        if figures["threshold"] is None:  # no threshold is as precise
            assert name == "precision"
            continue
        flagged = first["toxicity score"] >= figures["threshold"]
        if name == "flags":
            assert flagged.mean() == pytest.approx(0.05, abs=0.01)
        else:
            assert first["toxic"][flagged].mean() >= float(wanted.rstrip("%")) / 100
        flagged, toxic = second["toxicity score"] >= figures["threshold"], second["toxic"] == 1
        expected = {
            "flagged": flagged.mean(),
            "precision": toxic[flagged].mean(),
            "found": flagged[toxic].mean(),
        }
        expected |= {"false_positives": flagged[~toxic].mean(), "threshold": figures["threshold"]}
        expected |= {
            f"of {name}": flagged[~toxic & (second[name] == 1)].mean() for name in kernel.IDENTITIES
        }
        reported = {name: np.nan if value is None else value for name, value in figures.items()}
        assert {name: reported[name] for name in expected} == pytest.approx(
            expected, abs=1e-9, nan_ok=True
        )


def test_scores_of_the_folder_are_the_shares_of_raters(first_run):
    """On the half that the calibration was fitted on, in the mean, as of any logistic regression;
    on the other half, as far as its noise lets one see.
    """
    frame = read_predictions(first_run[0])
    for label in kernel.LABELS:
        fitted = frame[frame["measured"] == 0]
        assert fitted[f"{label} score"].mean() == pytest.approx(
            fitted[f"{label} share"].mean(), abs=5e-4
        ), label
    frame = frame.query("measured == 1")
    error = frame["toxicity score"] - frame["toxicity share"]
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(frame))
    assert (error**2).mean() <= 1.02 * ((frame["LSTM"] - frame["toxicity share"]) ** 2).mean()


def test_the_intervals_follow_from_the_holdout_predictions_and_hold_their_figures(first_run):
    _, report = first_run
    frame = read_predictions(first_run[0])
    toxic, scores = frame["toxic"].to_numpy() == 1, frame[["LSTM", "TF-IDF"]].to_numpy().T
    muslim = frame["muslim"].to_numpy() == 1
    generator, drawn = np.random.default_rng(int(report["settings"]["seed"])), []
    for _ in range(report["resamples"]):
        rows = generator.integers(len(toxic), size=len(toxic))
        with_it = [
            roc_auc_score(toxic[rows[muslim[rows]]], of[rows[muslim[rows]]]) for of in scores
        ]
        gap = equality_gap(scores[0][rows], (muslim & ~toxic)[rows], (~muslim & ~toxic)[rows])
        drawn.append([*(auc(toxic, of, rows) for of in scores), *with_it, gap])
    drawn, ends = np.array(drawn), [0.025, 0.975]
    of_lstm = report["intervals"]["LSTM"]
    assert of_lstm["all"]["overall_auc"] == pytest.approx(
        [*np.quantile(drawn[:, 0], ends)], abs=1e-9
    )
    assert of_lstm["muslim"]["subgroup_auc"] == pytest.approx(
        [*np.quantile(drawn[:, 2], ends)], abs=1e-9
    )
    assert of_lstm["muslim"]["negative_aeg"] == pytest.approx(
        [*np.quantile(drawn[:, 4], ends)], abs=1e-9
    )
    for model, intervals in report["intervals"].items():
        for identity, figures in report["identities"][model].items():
            for name in kernel.BIAS_AUCS + kernel.EQUALITY_GAPS:
                low, high = intervals[identity][name]
                assert low <= figures[name] <= high


def test_the_leaderboard_follows_from_the_submissions(finished):
    """Of the run, and of another model that was given as a csv of test comments."""
    folder, report, _ = finished
    models = {report["submitted"]: "submission.csv", "my submission.csv": "my submission.csv"}
    models = {name: file for name, file in models.items() if (folder / file).exists()}
    for name, of_leaderboard in report["leaderboards"].items():
        assert {*of_leaderboard} == {"TF-IDF", "LSTM", *models}
        labelled = pd.read_csv(SAMPLE / f"test_{name}_expanded.csv", dtype={"id": str})
        for model, file in models.items():
            predictions = pd.read_csv(
                folder / file, float_precision="round_trip", dtype={"id": str}
            )
            rows = labelled.merge(predictions, on="id")
            _, parts = expected_figures(
                rows["toxicity"] >= 0.5, rows["prediction"], rows[kernel.IDENTITIES] >= 0.5
            )
            assert of_leaderboard[model] == pytest.approx(parts | {"rows": len(rows)}, abs=1e-9)
    assert [*report["leaderboards"]] == (["public"] if len(models) > 1 else ["public", "private"])


def test_the_folder_gives_the_scores_that_its_thresholds_are_for(first_run):
    """Those of NumPy, of whole comments; the notebook's own are those of Keras."""
    folder, _ = first_run
    texts = pd.read_csv(SAMPLE / "train.csv", dtype=str, keep_default_na=False)
    texts, frame = texts.set_index("id")["comment_text"], read_predictions(folder)
    frame = frame[[len(kernel.cut(texts[id])) <= 220 for id in frame["id"]]].head(
        200
    )  # longer ones score in parts
    for label, scores in kernel.load(folder / "models")([texts[id] for id in frame["id"]]).items():
        assert scores == pytest.approx([*frame[f"{label} score"]], abs=1e-4)


def test_the_model_card_says_what_the_report_does(first_run):
    folder, report = first_run
    card = (folder / "models" / "README.md").read_text(encoding="utf-8")
    finals = [report["scores"][model]["final_score"] for model in ("LSTM", "TF-IDF")]
    said = "{:.4f}; TF-IDF with a logistic regression: {:.4f}".format(*finals)
    assert said in card.replace("\n", " ")
    for rule, figures in report["thresholds"].items():
        cells = (
            next(line for line in card.splitlines() if line.startswith(f"| {rule} |"))
            .strip("| ")
            .split(" | ")
        )
        expected = [
            figures[name]
            for name in ("threshold", "flagged", "precision", "found", "false_positives")
        ]
        assert cells[1:] == ["nan" if value is None else f"{value:.4f}" for value in expected]
    for identity, figures in report["identities"]["LSTM"].items():
        cells = (
            next(line for line in card.splitlines() if line.startswith(f"| {identity} |"))
            .strip("| ")
            .split(" | ")
        )
        expected = [f"{figures[name]:.4f}" for name in (*kernel.BIAS_AUCS, *kernel.EQUALITY_GAPS)]
        assert cells[1:] == [str(figures["comments"]), str(figures["toxic"]), *expected]


def test_the_readmes_lines_score_new_text_in_a_fresh_process(first_run, tmp_path):
    shutil.copytree(first_run[0] / "models", tmp_path / "models")
    texts = ["I am a kind widow", "You are a vile muslim."]
    readme = (kernel.NOTEBOOK.parent / "README.md").read_text(encoding="utf-8")
    lines = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]
    lines += "\nimport json, sys; print(json.dumps(score(json.loads(sys.argv[1]))))"
    command, environment = (
        [sys.executable, "-c", lines, json.dumps(texts)],
        os.environ | {"PYTHONPATH": "models"},
    )
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout.splitlines()[-1])
    assert scores == kernel.load(first_run[0] / "models")(texts) and list(scores) == kernel.LABELS


def test_make_score_writes_the_scores_of_a_csv(first_run, tmp_path):
    folder, _ = first_run
    comments = pd.read_csv(SAMPLE / "test.csv", dtype=str, keep_default_na=False).head(20)
    comments.to_csv(tmp_path / "my comments.csv", index=False)
    command = ["make", "-o", ".venv/installed", "score", f"INPUT={tmp_path / 'my comments.csv'}"]
    command.append(f"VENV_PYTHON={sys.executable}")
    environment = os.environ | {"KERNEL_OUTPUT_DIR": str(folder)}
    done = subprocess.run(
        command, cwd=kernel.NOTEBOOK.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    scores = pd.read_csv(folder / "scores.csv", dtype={"id": str}, keep_default_na=False)
    assert list(scores) == ["id", "comment_text", *kernel.LABELS] and list(scores["id"]) == list(
        comments["id"]
    )
    expected = kernel.load(folder / "models")(comments["comment_text"])["toxicity"]
    assert list(scores["toxicity"]) == pytest.approx(expected, rel=1e-4)


def test_what_was_pushed_trains_on_the_comments_that_kaggle_attached(pushed_run, attached):
    report = json.loads((pushed_run / "report.json").read_text())
    assert sum(report["rows"][name] for name in ("fitted", "held_out")) == 1501
    check_submission(pushed_run, attached / kernel.COMPETITION)


def test_a_killed_run_goes_on_where_it_was_and_gives_the_same_submission(
    killed_run, pushed_run, small
):
    """Though others are compared, too, and comments are shown: no network depends on these."""
    check_submission(killed_run / "at kill", small["input_dir"])
    folders = killed_run / "at kill", killed_run, pushed_run
    first = [next((folder / "models").glob("model_1_*.npz")) for folder in folders]
    networks = [dict(np.load(path)) for path in first]
    assert networks[0]["run"] == networks[1]["run"]
    for network in networks[1:]:
        for name in network.keys() - {"run"}:
            assert np.array_equal(network[name], networks[0][name]), name
    submissions = [(folder / "submission.csv").read_bytes() for folder in folders[1:]]
    assert submissions[0] == submissions[1]
    log = (killed_run / "run.ipynb").read_text()
    assert "taken over: model_1" in log and "model_1, epoch" not in log


def contents(folder):
    """{path: bytes} of what a run leaves."""
    paths = [*folder.glob("*.csv"), *folder.glob("*.json"), *folder.glob("models/*")]
    return {path: path.read_bytes() for path in paths}


def test_a_finished_run_that_is_given_again_and_killed_stays_as_it_was(killed_run, small):
    """Early, and when its networks are taken over; as the same run, and as another one."""
    before = contents(killed_run)
    settings = small | {"input_dir": killed_run / "comments"}
    log = killed_run / "run.ipynb"
    for moment in ("At most 2 networks", "Networks of an earlier start"):
        log.unlink(missing_ok=True)
        process = start_notebook(killed_run, **settings)
        kill_when(process, lambda said=moment: log.exists() and said in log.read_text())
        assert contents(killed_run) == before
    vectors = len([*killed_run.glob("models/vectors_*")])
    process = start_notebook(killed_run, **settings | {"seed": 7})
    kill_when(process, lambda: len([*killed_run.glob("models/vectors_*")]) > vectors)
    after = contents(killed_run)
    assert {path: after[path] for path in before} == before
    assert 0 < kernel.load(killed_run / "models")("a comment")["toxicity"] < 1


def test_another_model_joins_the_comparison(killed_run):
    report = json.loads((killed_run / "report.json").read_text())
    assert [*report["scores"]] == ["TF-IDF", "my model.csv", "LSTM"]
    frame = read_predictions(killed_run)
    texts = pd.read_csv(SAMPLE / "train.csv", dtype=str, keep_default_na=False).set_index("id")[
        "comment_text"
    ]
    assert list(frame["my model.csv"]) == [len(texts[id]) / 1000 for id in frame["id"]]


def test_two_workers_on_comments_whose_identities_no_rater_was_asked_about(small, tmp_path):
    folder = copy_of_sample(tmp_path / "comments", rows=1501)
    train = pd.read_csv(folder / "train.csv", dtype=str, keep_default_na=False)
    train[kernel.IDENTITIES] = ""
    train.drop(columns=kernel.OTHER_IDENTITIES).to_csv(folder / "train.csv", index=False)
    report = run_notebook(tmp_path, **small | {"input_dir": folder, "workers": 2})
    assert report["found_by_terms"] == kernel.IDENTITIES and report["leaderboards"] == {}
    assert {*report["networks"]} == {"model_1", "model_2"}
    texts = train.set_index("id")["comment_text"]
    predictions = read_predictions(tmp_path).set_index("id")
    for identity in ("muslim", "white"):
        terms = set(" ".join(kernel.IDENTITY_TERMS[identity]).split())
        named = [
            bool(terms & set(re.findall(r"\w+", texts[id].lower()))) for id in predictions.index
        ]
        assert sum(named) and named == list(predictions[identity] == 1)
    card = (tmp_path / "models" / "README.md").read_text().replace("\n", " ")
    assert "found by these words: male, female" in card
    check_submission(tmp_path, folder)
