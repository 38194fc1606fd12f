"""Scorer: a folder that scores by itself, in any process, from Python and from the shell."""

import ast
import csv
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kernel
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

WORDS = ["the", "cat", "idiot", "!", "do", "n't", "Zebra"]
EXTRA_WORDS = ["house"]  # from the vector files, in no comment of the run
WITHOUT_VECTOR = ["the", "Zebra"]
TRAINED_WORDS = (0, 3, 0)  # of each network, the last of which is the student
CALIBRATION = [[0.5 + 0.1 * label, 1.5, 0.25 * label - 1] for label in range(7)]
DEFINITIONS = ["".join(c["source"]) for c in kernel.CELLS if "define" in c["metadata"].get("tags", [])]
NEWEST = Path(sys.prefix) / "newest"  # where the Makefile puts the newest Keras

TEXTS = {  # with their tokens: 1 stands for no words, 10 for any word that has no vector
    "the cat don't": [2, 3, 6, 7],
    "idiot!": [4, 5],
    "the cat unheard": [2, 3, 10],
    "": [1],
    "the the the the the the cat": [2, 2, 2, 3],  # repeats are shortened
    "Idiot HOUSE": [4, 9],  # other spellings
    "zebra": [10],  # has no vector in any spelling
    "the cat idiot ! the idiot ! cat": [2, 3, 4, 5, 2, 4, 5, 3],  # more than the six tokens that networks read
}


@pytest.fixture(scope="module")
def networks():
    """Pretrained vectors, and three networks on them."""
    kernel.keras.utils.set_random_seed(0)
    generator = np.random.default_rng(0)
    words = [*WORDS, *EXTRA_WORDS]
    vectors = generator.normal(size=(len(words) + 2, 5)).astype(np.float32)
    vectors[[0, 1, *(2 + words.index(word) for word in WITHOUT_VECTOR)]] = 0
    pretrained = kernel.pretrained_vectors(vectors)
    models = [kernel.build_model(pretrained, trained_words, 4) for trained_words in TRAINED_WORDS]
    for model in models:
        for weight in model.trainable_weights:
            weight.assign(weight + generator.normal(size=weight.shape, scale=0.3))
    return pretrained, models


def save(folder, networks, **changes):
    """A folder as a run leaves it: two models and their student."""
    pretrained, models = networks
    names = ["model 1", "model 2", "student"]
    saved = [
        kernel.TrainedModel(number, name, words, [w.numpy() for w in model.trainable_weights], None, 0, [])
        for number, (name, words, model) in enumerate(zip(names, TRAINED_WORDS, models, strict=True))
    ]
    has_vector = np.array([word not in WITHOUT_VECTOR for word in WORDS])
    kept = kernel.words_to_save(WORDS, has_vector, max(TRAINED_WORDS))
    folder.mkdir(exist_ok=True)
    kernel.save_vectors(folder, pretrained, np.append(kept, True))
    kernel.write_scorer(folder / "toxicity.py", DEFINITIONS)
    description = {
        "format": kernel.FORMAT,
        "versions": {"keras": kernel.keras.__version__},
        "max_tokens": 6,
        "lstm_units": 4,
        "labels": kernel.LABELS,
        "words": [*itertools.compress(WORDS, kept), *EXTRA_WORDS],
        "calibration": {"student": CALIBRATION},
        "check": {},
    }
    kernel.save_models(folder, description | changes, student=saved[2:], all=saved[:2])
    return folder


@pytest.fixture(scope="module")
def folder(networks, tmp_path_factory):
    return save(tmp_path_factory.mktemp("run") / "models", networks)


def logits(network, tokens):
    """All labels' logits, float (7,); words without a vector have the number 8, or 10 in a saved folder."""
    heads = network(np.array([[8 if token == 10 else token for token in tokens]], np.int32))
    return np.concatenate([heads["toxicity"].numpy(), heads["subtypes"].numpy()], axis=1)[0]


def expected_scores(networks, tokens):
    """Shares by the student, and scores of the average of the other two: float (7,), each."""
    parts = [tokens[start : start + 6] for start in ([0] if len(tokens) <= 6 else [0, len(tokens) - 6])]
    student = np.max([expit(logits(networks[2], part)) for part in parts], axis=0)
    average = np.max(
        [np.mean([expit(logits(model, part)) for model in networks[:2]], axis=0) for part in parts], axis=0
    )
    a, b, c = np.transpose(CALIBRATION)
    return expit(a * np.log(student) - b * np.log(1 - student) + c), average


def test_the_folder_scores_as_its_networks_do(networks, folder):
    by_student, by_all = kernel.load(folder)([*TEXTS]), kernel.load(folder, all_networks=True)([*TEXTS])
    assert list(by_student) == list(by_all) == kernel.LABELS
    for place, tokens in enumerate(TEXTS.values()):
        shares, average = expected_scores(networks[1], tokens)
        assert [column[place] for column in by_student.values()] == pytest.approx(list(shares), abs=1e-5)
        assert [column[place] for column in by_all.values()] == pytest.approx(list(average), abs=1e-5)


def test_a_text_gets_numbers_and_a_list_gets_lists(folder):
    score = kernel.load(folder)
    of_text, of_list = score("the cat"), score(["the cat", "idiot"])
    assert all(type(value) is float for value in of_text.values())
    assert {label: values[0] for label, values in of_list.items()} == pytest.approx(of_text, abs=1e-6)
    assert {len(values) for values in of_list.values()} == {2}
    assert score([]) == {label: [] for label in kernel.LABELS}
    assert score(pd.Series(["the cat"], index=[7]))["toxicity"] == pytest.approx([of_text["toxicity"]], abs=1e-6)


@pytest.mark.parametrize("comments", [["the", None], [float("nan")], [b"the"], 7, pd.DataFrame({"text": ["the"]})])
def test_what_is_no_text_is_refused(folder, comments):
    with pytest.raises(TypeError):
        kernel.load(folder)(comments)


def test_only_labels_that_were_learned_are_given(networks, tmp_path):
    score = kernel.load(save(tmp_path, networks, labels=["toxicity", "threat"]))
    assert list(score("the cat")) == ["toxicity", "threat"]
    assert score("the cat")["threat"] == pytest.approx(expected_scores(networks[1], [2, 3])[0][5], abs=1e-5)


@given(st.lists(st.integers(), max_size=50), st.integers(4, 20))
def test_pieces_cover_a_text_and_overlap_by_half(tokens, size):
    parts = kernel.pieces(tokens, size)
    starts = [0]
    for before, part in itertools.pairwise(parts):
        starts.append(min(starts[-1] + -(-size // 2), len(tokens) - size))
        assert len(before) == len(part) == size
    assert parts == [tokens[start : start + size] for start in starts]
    assert starts[-1] + size >= len(tokens) and len(parts[0]) == min(size, len(tokens))


def test_a_score_does_not_depend_on_the_other_comments(folder):
    score = kernel.load(folder)
    comments = [" ".join(["the cat !"] * (1 + number % 5)) for number in range(40)]
    alone = [score(comment)["insult"] for comment in comments]
    assert score(comments)["insult"] == pytest.approx(alone, abs=1e-6)


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=30),
    st.floats(0, 3),
    st.floats(0.01, 3),
    st.floats(-5, 5),
)
def test_calibration_keeps_the_order_and_stays_within_0_and_1(scores, a, b, c):
    for curve in ([a, b, c], [b, a, c]):
        shares = kernel.calibrate(np.sort(scores)[:, None], [curve])[:, 0]
        assert (np.diff(shares) >= -1e-12).all() and (shares >= 0).all() and (shares <= 1).all()


def test_without_calibration_scores_stay_as_they_are():
    scores = np.random.default_rng(0).random((20, 7))
    assert kernel.calibrate(scores, kernel.NO_CALIBRATION) == pytest.approx(scores, abs=1e-9)
    assert kernel.calibrate(np.full((1, 1), 0.3), [[2, 2, 1]])[0, 0] == pytest.approx(expit(2 * logit(0.3) + 1))


def test_explain_leaves_out_each_word_in_turn(folder):
    score = kernel.load(folder)
    falls = kernel.explain(score, "the cat idiot!")
    assert sorted(word for word, _ in falls) == ["cat", "idiot!", "the"]
    whole = score("the cat idiot!")["toxicity"]
    without = {"the": "cat idiot!", "cat": "the idiot!", "idiot!": "the cat"}
    for word, fall in falls:
        assert fall == pytest.approx(whole - score(without[word])["toxicity"], abs=1e-6)
    assert [fall for _, fall in falls] == sorted((fall for _, fall in falls), reverse=True)
    assert kernel.explain(score, "") == []


def test_nothing_that_is_saved_is_pickled(folder):
    weights = ["model_1.npz", "model_2.npz", "student.npz"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "embedding_matrix.npy",
        weights[0],
        weights[1],
        "models.json",
        weights[2],
        "toxicity.py",
    ]
    assert np.load(folder / "embedding_matrix.npy", allow_pickle=False).dtype == np.float32
    for name in weights:
        with np.load(folder / name, allow_pickle=False) as arrays:
            assert {arrays[name].dtype for name in arrays} == {np.dtype(np.float32)}


def test_networks_of_another_run_are_deleted(networks, tmp_path):
    save(tmp_path, networks, fingerprint="of another run")
    (tmp_path / "README.md").write_text("the card of another run")
    assert kernel.saved_models(tmp_path, "of this one") == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["embedding_matrix.npy", "toxicity.py"]


def test_networks_of_the_same_run_are_taken_over(networks, tmp_path):
    save(tmp_path, networks, fingerprint="of both")
    shutil.copy(tmp_path / "model_1.npz", tmp_path / "model_3.npz")  # saved, but not listed when the run was killed
    saved = kernel.saved_models(tmp_path, "of both")
    names = ["model 1", "model 2", "student"]
    assert {*saved} == {*names}
    for name, trained_words, network in zip(names, TRAINED_WORDS, networks[1], strict=True):
        assert saved[name].trained_words == trained_words
        for saved_weight, weight in zip(saved[name].weights, network.trainable_weights, strict=True):
            assert np.array_equal(saved_weight, weight.numpy())
    assert not (tmp_path / "model_3.npz").exists()
    kernel.load(tmp_path)


@pytest.mark.parametrize("name", ["models.json", "model_2.npz"])
@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}"])
def test_a_spoilt_folder_is_begun_afresh(networks, tmp_path, name, content):
    save(tmp_path, networks, fingerprint="of both")
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    assert kernel.saved_models(tmp_path, "of both") == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["embedding_matrix.npy", "toxicity.py"]


def test_a_fingerprint_tells_any_change():
    parts = [kernel.Settings(), {"keras": "3.13"}, ["a", "b"], np.arange(6).reshape(2, 3), np.array([0.5, np.nan])]
    others = [kernel.Settings(seed=1), {"keras": "3.14"}, ["a", "B"], np.arange(1, 7), np.array([0.25, np.nan])]
    fingerprints = {kernel.fingerprint_of(*parts)}
    for place, other in enumerate(others):
        fingerprints.add(kernel.fingerprint_of(*parts[:place], other, *parts[place + 1 :]))
    assert len(fingerprints) == 1 + len(parts)
    assert kernel.fingerprint_of(*parts) in fingerprints


def test_words_without_a_vector_are_left_out_unless_another_spelling_would_be_found():
    words = ["frequent", "cat", "Frequent", "unknown", "CAT", "dog"]
    has_vector = np.array([False, True, False, False, False, True])
    assert list(kernel.words_to_save(words, has_vector, 1)) == [True, True, True, False, True, True]


def test_another_format_is_refused(networks, tmp_path):
    save(tmp_path, networks, format=kernel.FORMAT + 1)
    with pytest.raises(
        ValueError, match=rf"models\.json: has format {kernel.FORMAT + 1}, and this code reads {kernel.FORMAT}"
    ):
        kernel.load(tmp_path)


def test_a_folder_that_scores_otherwise_than_where_it_was_saved_is_refused(networks, tmp_path):
    toxicity = expected_scores(networks[1], [2, 3])[0][0]
    kernel.load(save(tmp_path, networks, check={"student": {"the cat": toxicity}}))
    save(tmp_path, networks, check={"student": {"the cat": toxicity + 0.02}}, versions={"keras": "3.99"})
    with pytest.raises(ValueError, match="was saved with .*3.99.* and scores otherwise with Keras"):
        kernel.load(tmp_path)
    kernel.load(tmp_path, all_networks=True)
    spoilt = [np.full_like(weight, np.nan) for weight in np.load(tmp_path / "student.npz").values()]
    np.savez(tmp_path / "student.npz", *spoilt)
    with pytest.raises(ValueError, match="scores otherwise"):
        kernel.load(tmp_path)


def test_vectors_of_another_run_are_refused(networks, tmp_path):
    with pytest.raises(ValueError, match="embedding_matrix.npy: holds 10 vectors for 2 words"):
        kernel.load(save(tmp_path, networks, words=["the", "cat"]))


@pytest.mark.parametrize("name", ["models.json", "student.npz", "embedding_matrix.npy"])
def test_a_broken_file_of_the_folder_is_named(folder, tmp_path, name):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=re.escape(name)):
        kernel.load(tmp_path)


def run_python(folder, *arguments, **options):
    """Run Python in the folder that holds `models`, without the notebook's repository in reach."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KERNEL_OUTPUT_DIR")}
    environment |= options.pop("environment", {})
    options = {"text": True} | options
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, **options)


@pytest.fixture(scope="module")
def elsewhere(folder, tmp_path_factory):
    """An empty place with a copy of the folder."""
    place = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(folder, place / "models")
    return place


THREE_LINES = """
import sys; sys.path.insert(0, "models")
from toxicity import explain, load
score = load("models")
import json, keras; print(json.dumps([keras.__file__, score(json.loads(sys.argv[1])), explain(score, "an idiot")]))
"""


@pytest.mark.parametrize("keras", ["pinned", "newest"])
def test_the_folder_works_in_an_empty_place(folder, elsewhere, keras):
    if keras == "newest" and not NEWEST.is_dir():
        pytest.skip(f"`make test` puts the newest Keras into {NEWEST}")
    path = {"PYTHONPATH": str(NEWEST)} if keras == "newest" else {}
    done = run_python(elsewhere, "-c", THREE_LINES, json.dumps([*TEXTS]), environment=path)
    assert done.returncode == 0, done.stderr
    path, scores, falls = json.loads(done.stdout)
    assert Path(path).is_relative_to(NEWEST) is (keras == "newest")
    for label, values in kernel.load(folder)([*TEXTS]).items():
        assert scores[label] == pytest.approx(values, abs=1e-5)
    assert sorted(word for word, _ in falls) == ["an", "idiot"]


def test_the_folder_needs_numpy_and_keras_with_its_backend_only(folder):
    imported = set()
    for node in ast.walk(ast.parse((folder / "toxicity.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.split(".")[0])
    assert imported - sys.stdlib_module_names == {"numpy", "keras", "tensorflow"}


def test_toxicity_py_holds_the_notebooks_definitions_and_nothing_else(folder):
    source = (folder / "toxicity.py").read_text(encoding="utf-8")
    notebook = "\n".join(DEFINITIONS)
    parts = source.split("\n\n\n")
    assert [part for part in parts[2:-1] if part not in notebook] == []
    for name in ("cut", "load", "explain", "score_csv", "main", "build_model"):
        assert f"def {name}(" in source
    for name in ("bias_table", "toxicity_loss", "train_model", "TfidfVectorizer", "write_scorer"):
        assert name not in source


def test_the_last_definition_of_a_name_counts_and_cells_that_do_not_run_are_passed_over(tmp_path):
    cells = [
        "import os, json as j\nfrom pathlib import Path, PurePath",
        "LIMIT, OTHER = 3, 4  # why\ndef load(): return helper(LIMIT)",
        "def explain(",
        "x = LIMIT = 5; main = 7",
        "def helper(a):\n    # old\n    return a",
        "@decorated\ndef helper(a):\n    # new\n    return j.dumps(a)",
        "def decorated(f): return f\ndef explain(): return Path\ndef main(): pass\nload.LIMIT = 6",
    ]
    kernel.write_scorer(tmp_path / "toxicity.py", cells)
    source = (tmp_path / "toxicity.py").read_text()
    assert "import json as j\nfrom pathlib import Path\n" in source and "PurePath" not in source
    assert "# new" in source and "# old" not in source and "@decorated\ndef helper" in source
    assert "x = LIMIT = 5; main = 7" in source and "load.LIMIT" not in source


ROWS = [["id", "comment_text", "a note"], ["007", 'the "cat",\nidiot', "é"], ["8", "", ""], ["9", "idiot !", "x,y"]]
ROWS += [["10", "the\rcat\r\n!", "a\rb"], ["11", "the\0cat", "\0"]]


def as_csv(rows):
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    return text.getvalue()


@pytest.mark.parametrize("way", ["file", "standard input"])
def test_a_csv_comes_back_with_its_columns_and_the_scores(folder, elsewhere, way):
    (elsewhere / "comments.csv").write_bytes(("\ufeff" + as_csv(ROWS)).encode())
    arguments = ["models/toxicity.py"] + (["comments.csv"] if way == "file" else [])
    done = run_python(elsewhere, *arguments, text=False, input=None if way == "file" else as_csv(ROWS).encode())
    assert done.returncode == 0, done.stderr
    header, *rows = csv.reader(io.StringIO(done.stdout.decode(), newline=""))
    assert header == ROWS[0] + kernel.LABELS
    assert [row[:3] for row in rows] == ROWS[1:]
    expected = kernel.load(folder)([row[1] for row in ROWS[1:]])
    for row, values in zip(rows, zip(*expected.values(), strict=True), strict=True):
        assert [float(field) for field in row[3:]] == pytest.approx(values, rel=1e-3)
    assert b"5 comments" in done.stderr and (b"[####" in done.stderr) is (way == "file")


def score_text(folder, text, column="comment_text"):
    """What score_csv writes for a csv that is given as text or bytes."""
    target = io.StringIO()
    source = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    kernel.score_csv(kernel.load(folder), source, target, column)
    return target.getvalue()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("id,text\n1,a\n", "0 of the columns id, text are called comment_text; see --column"),
        ("comment_text,comment_text\n1,a\n", "2 of the columns comment_text, comment_text are called comment_text"),
        ("", "0 of the columns  are called comment_text"),
        ("comment_text,insult\na,0\n", "there is a column insult already"),
        ("id,comment_text\n1,a\n2\n", "row 2 has 1 fields, the header 2"),
        ("id,comment_text\n" + "1,a\n" * 9 + "2,b,c\n", "row 10 has 3 fields, the header 2"),
        ('id,comment_text\n1,"a\n', "line 2: unexpected end of data"),
        (b"id,comment_text\n1,a\n1,\xff\xfe\n", "line 3: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_what_is_wrong_with_a_csv_is_said(folder, text, fault, monkeypatch):
    monkeypatch.setattr(kernel, "ROWS_AT_ONCE", 4)
    with pytest.raises(ValueError, match=re.escape(fault)):
        score_text(folder, text)


def test_a_csv_of_any_length_is_scored_in_parts_and_nothing_is_lost(folder, monkeypatch):
    monkeypatch.setattr(kernel, "ROWS_AT_ONCE", 7)
    texts = [" ".join(WORDS[: number % 5]) for number in range(40)]
    target = score_text(folder, as_csv([["text"], *([text or "!"] for text in texts)]), column="text")
    frame = pd.read_csv(io.StringIO(target), keep_default_na=False)
    assert list(frame["text"]) == [text or "!" for text in texts]
    assert list(frame["toxicity"]) == pytest.approx(kernel.load(folder)([*frame["text"]])["toxicity"], rel=1e-4)


def test_a_fault_in_the_shell_is_one_line_and_a_status(elsewhere):
    """The last line: TensorFlow 2.21 writes some of its own before it, whatever the level of its log."""
    (elsewhere / "wrong.csv").write_text("id,text\n1,a\n")
    for arguments in (["wrong.csv"], ["wrong.csv", "--column", "words"], ["missing.csv"]):
        done = run_python(elsewhere, "models/toxicity.py", *arguments)
        assert done.returncode == 1 and done.stdout == ""
        assert arguments[0] in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_who_reads_only_the_first_scores_sees_no_traceback(elsewhere):
    (elsewhere / "long.csv").write_text("comment_text\n" + "the cat\n" * 20_000)
    command = f"'{sys.executable}' models/toxicity.py long.csv | head -2"
    done = subprocess.run(command, shell=True, cwd=elsewhere, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 2 and "Traceback" not in done.stderr


def test_lines_may_end_as_on_windows(folder):
    texts = ["comment_text", "the cat", "idiot"]
    assert score_text(folder, "\r\n".join(texts)) == score_text(folder, "\n".join(texts))
