"""Settings: what the environment can set, and where the files are found."""

from pathlib import Path

import kernel
import pytest
from pydantic import ValidationError
from runs import environment_of

COMPETITION = "jigsaw-unintended-bias-in-toxicity-classification"
COMPETITION_FILES = ("train.csv", "test.csv", "sample_submission.csv")
GLOVE, CRAWL = "glove.840B.300d.txt", "crawl-300d-2M.vec"
NAMES = [f"KERNEL_{name.upper()}" for name in kernel.Settings.model_fields]


def value_of(name, text):
    return getattr(kernel.settings_from({name: text}), name.removeprefix("KERNEL_").lower())


def test_without_variables_every_setting_has_its_default():
    assert kernel.settings_from({}) == kernel.Settings()


def test_every_default_lies_within_its_own_limits():
    """But for those that depend on the machine, or are empty."""
    given = {f"KERNEL_{name.upper()}": str(value) for name, value in kernel.Settings() if value}
    assert len(given) >= 8 and kernel.settings_from(given) == kernel.Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("KERNEL_SEED", "0", 0),
        ("KERNEL_SEED", "2147483648", 2**31),
        ("KERNEL_EPOCHS", "12", 12),
        ("KERNEL_LEARNING_RATE", "5e-4", 0.0005),
        ("KERNEL_TIME_LIMIT", "3600", 3600.0),
        ("KERNEL_INPUT_DIR", "/data/my comments", Path("/data/my comments")),
        ("KERNEL_OUTPUT_DIR", "out", Path("out")),
        ("KERNEL_VECTOR_FILES", "one.vec", (Path("one.vec"),)),
        ("KERNEL_VECTOR_FILES", "/b/two.txt:a.vec", (Path("/b/two.txt"), Path("a.vec"))),
        ("KERNEL_SWAP_TERMS", "no", False),
        ("KERNEL_SHOW_COMMENTS", "yes", True),
    ],
)
def test_value_is_read_from_the_environment(name, text, value):
    found = value_of(name, text)
    assert found == value and type(found) is type(value)


def test_variables_are_set_side_by_side_and_others_are_ignored():
    """Those of Jupyter, too, which begin like those of the notebook."""
    others = {"PATH": "/bin", "KAGGLE_KERNEL_RUN_TYPE": "Batch", "SEED": "x", "KERNEL_ID": "7"}
    given = {"KERNEL_SEED": "7", "KERNEL_EPOCHS": "3"}
    assert kernel.settings_from(given | others) == kernel.Settings(seed=7, epochs=3)


def refusal_of(name, text):
    with pytest.raises(ValueError) as refusal:
        kernel.settings_from({"KERNEL_SEED": "1", name: text})
    assert all(known in str(refusal.value) for known in NAMES), "it lists the settings there are"
    return str(refusal.value)


@pytest.mark.parametrize("name", ["KERNEL_SEEDS", "KERNEL_LSTM", "KERNEL_"])
def test_unknown_name_is_refused(name):
    assert refusal_of(name, "1").startswith(f"{name}='1': Extra inputs are not permitted")


@pytest.mark.parametrize("text", ["", "many", "nan", "-1"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(("_DIR", "_FILES"))])
def test_number_that_makes_no_sense_is_refused(name, text):
    assert refusal_of(name, text).startswith(f"{name}={text!r}: Input should be ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("KERNEL_SEED", "2147483649"),
        ("KERNEL_SEED", "1.5"),
        ("KERNEL_EPOCHS", "0"),
        ("KERNEL_MODELS", "1e9"),
        ("KERNEL_BATCH_SIZE", "0"),
        ("KERNEL_LSTM_UNITS", "0"),
        ("KERNEL_MAX_TOKENS", "3"),  # of which a quarter is the tail
        ("KERNEL_HOLDOUT_SHARE", "0"),  # nothing to score the model on
        ("KERNEL_HOLDOUT_SHARE", "1"),  # nothing to learn from
        ("KERNEL_LEARNING_RATE", "0"),
        ("KERNEL_TIME_LIMIT", "0"),
        ("KERNEL_TIME_LIMIT", "inf"),
        ("KERNEL_TIME_LIMIT", "2h"),
        ("KERNEL_SWAP_TERMS", "maybe"),
    ],
)
def test_value_out_of_range_is_refused(name, text):
    assert refusal_of(name, text).startswith(f"{name}='{text}': ")


@pytest.mark.parametrize("text", ["", "a.vec:"])
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(("_DIR", "_FILES"))])
def test_a_path_may_not_be_empty(name, text):
    if text and name.endswith("_DIR"):
        assert value_of(name, text) == Path(text)  # a folder may have such a name
    else:
        assert refusal_of(name, text).startswith(f"{name}='': Value error, is empty")


def test_settings_cannot_be_changed_later():
    with pytest.raises(ValidationError, match="frozen"):
        kernel.Settings().seed = 1


def attach(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


LAYOUTS = [f"competitions/{COMPETITION}", COMPETITION, "datasets/somebody/copy/of the/files"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_comments_are_found_in_every_layout(tmp_path, layout):
    attach(tmp_path / "another-competition", "train.csv", "test.csv")
    attach(tmp_path / "vectors", GLOVE, CRAWL)
    folder = attach(tmp_path / layout, *COMPETITION_FILES)
    assert kernel.find_files(kernel.Settings(), tmp_path)[0] == folder


@pytest.mark.parametrize(
    ("glove", "crawl"),
    [
        ("datasets/takuok/glove840b300dtxt", "datasets/yekenot/fasttext-crawl-300d-2m"),
        ("glove840b300dtxt", "fasttext-crawl-300d-2m"),
        ("datasets/takuok/glove840b300dtxt", "fasttext-crawl-300d-2m"),
        ("datasets/somebody/both/vectors", "datasets/somebody/both/vectors"),
        (f"datasets/somebody/{GLOVE}", f"datasets/somebody/{CRAWL}"),  # folders called as the files
    ],
)
def test_vectors_are_found_in_every_layout(tmp_path, glove, crawl):
    attach(tmp_path / COMPETITION, *COMPETITION_FILES)
    files = [attach(tmp_path / glove, GLOVE) / GLOVE, attach(tmp_path / crawl, CRAWL) / CRAWL]
    assert kernel.find_files(kernel.Settings(), tmp_path)[1] == files


def test_the_attached_source_wins_over_others_with_files_of_that_name(tmp_path):
    attach(tmp_path / COMPETITION, *COMPETITION_FILES)
    attach(tmp_path / "a-copy", *COMPETITION_FILES, GLOVE, CRAWL)
    own = attach(tmp_path / "glove840b300dtxt", GLOVE)
    found = kernel.find_files(kernel.Settings(), tmp_path)
    assert found == (tmp_path / COMPETITION, [own / GLOVE, tmp_path / "a-copy" / CRAWL])


@pytest.mark.parametrize(
    ("attached", "missing", "source"),
    [
        ([GLOVE, CRAWL], "sample_submission.csv", COMPETITION),
        (COMPETITION_FILES, GLOVE, "takuok/glove840b300dtxt"),
        ([*COMPETITION_FILES, CRAWL], GLOVE, "takuok/glove840b300dtxt"),
        ([*COMPETITION_FILES, GLOVE], CRAWL, "yekenot/fasttext-crawl-300d-2m"),
    ],
)
def test_what_is_not_attached_is_named(tmp_path, attached, missing, source):
    attach(tmp_path / "data", *attached)
    with pytest.raises(FileNotFoundError) as refusal:
        kernel.find_files(kernel.Settings(), tmp_path)
    advice = "KERNEL_INPUT_DIR", "KERNEL_VECTOR_FILES"
    for part in (missing, f"Attach {source}", str(tmp_path), *advice):
        assert part in str(refusal.value)


def test_settings_win_over_what_is_attached(tmp_path):
    comments = attach(tmp_path / "input" / COMPETITION, *COMPETITION_FILES, GLOVE, CRAWL)
    own = attach(tmp_path / "own", *COMPETITION_FILES, "b.vec", "a.vec")
    vectors = {"vector_files": (own / "b.vec", own / "a.vec", own / "b.vec")}  # each counts once
    for settings, folder in (({"input_dir": own}, own), ({}, comments)):
        found = kernel.find_files(kernel.Settings(**settings, **vectors), tmp_path / "input")
        assert found == (folder, [own / "b.vec", own / "a.vec"])


@pytest.mark.parametrize("missing", [*COMPETITION_FILES, "own.vec", "other.csv"])
def test_a_named_file_that_is_missing_is_named_before_anything_is_read(tmp_path, missing):
    """Even if one of that name is attached, or it is read late."""
    attach(tmp_path / "input" / COMPETITION, *COMPETITION_FILES, GLOVE, CRAWL)
    own = attach(tmp_path / "own", *({*COMPETITION_FILES, "own.vec", "other.csv"} - {missing}))
    files = {"vector_files": (own / "own.vec",), "compare_files": (own / "other.csv",)}
    with pytest.raises(FileNotFoundError, match=f"{own / missing} is missing.*KERNEL_INPUT_DIR"):
        kernel.find_files(kernel.Settings(input_dir=own, **files), tmp_path / "input")


def test_outside_kaggle_the_sample_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tests.sample.train\.csv.*KERNEL_INPUT_DIR"):
        kernel.find_files(kernel.Settings(), tmp_path / "absent")
    attach(tmp_path / "tests" / "sample", *COMPETITION_FILES)
    attach(tmp_path / "embeddings", "sample.vec")
    expected = Path("tests/sample"), [Path("embeddings/sample.vec")]
    assert kernel.find_files(kernel.Settings(), tmp_path / "absent") == expected


def test_own_comments_outside_kaggle_need_own_vectors(tmp_path):
    settings = kernel.Settings(input_dir=attach(tmp_path, *COMPETITION_FILES))
    with pytest.raises(FileNotFoundError, match="KERNEL_VECTOR_FILES"):
        kernel.find_files(settings, tmp_path / "absent")


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert value_of("KERNEL_OUTPUT_DIR", "~/results") == Path("/somewhere/results")
    files = Path("/somewhere/a.vec"), Path("b.vec")
    assert value_of("KERNEL_VECTOR_FILES", "~/a.vec:b.vec") == files


def run_first_cell(folder, monkeypatch, device="cpu:0", **settings):
    """The variables of the cell that reads the settings, on a folder of empty files."""
    given = {"vector_files": folder / "own.vec", "output_dir": folder} | settings
    monkeypatch.setattr(kernel.os, "environ", environment_of(given))
    names = vars(kernel) | {"start": 7.0, "find_devices": lambda workers: [device]}
    kernel.run_cell(kernel.number_of_cell("settings = settings_from("), names)
    return names


@pytest.mark.parametrize("device, hours", [("gpu:0", 2), ("cpu:0", 9)])
def test_a_run_of_ones_own_comments_keeps_to_kaggles_limit(tmp_path, monkeypatch, device, hours):
    attach(tmp_path, *COMPETITION_FILES, "own.vec")
    names = run_first_cell(tmp_path, monkeypatch, device, input_dir=tmp_path)
    assert names["end"] == 7 + names["time_limit"] == 7 + hours * 3600 - 600
    assert (names["settings"].models, names["settings"].lstm_units) == (25, 128)


def test_the_sample_has_defaults_of_its_own_which_settings_win_over(tmp_path, monkeypatch):
    monkeypatch.chdir(attach(tmp_path, "own.vec"))
    attach(tmp_path / "tests" / "sample", *COMPETITION_FILES)
    names = run_first_cell(tmp_path, monkeypatch, models=7, time_limit=60)
    own = names["settings"]
    assert (own.models, own.lstm_units, own.batch_size) == (7, 32, 64) and names["end"] == 67
