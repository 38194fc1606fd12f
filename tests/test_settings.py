"""Settings: what the environment can set, and where the files are found."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import kernel
import pytest

COMPETITION = "jigsaw-unintended-bias-in-toxicity-classification"
COMPETITION_FILES = ("train.csv", "test.csv", "sample_submission.csv")
GLOVE, CRAWL = "glove.840B.300d.txt", "crawl-300d-2M.vec"
NAMES = [f"KERNEL_{field.name.upper()}" for field in fields(kernel.Settings)]


def value_of(name, text):
    return getattr(kernel.settings_from({name: text}), name.removeprefix("KERNEL_").lower())


def test_without_variables_every_setting_has_its_default():
    settings = kernel.settings_from({})
    assert settings == kernel.Settings()
    assert (settings.input_dir, settings.vector_files, settings.time_limit) == (None, (), None), "to be found out"


def test_every_default_lies_within_its_own_limits():
    given = {field.name: str(field.default) for field in fields(kernel.Settings) if field.default not in (None, ())}
    assert kernel.settings_from({f"KERNEL_{name.upper()}": text for name, text in given.items()}) == kernel.Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("KERNEL_SEED", "0", 0),
        ("KERNEL_SEED", "2147483648", 2**31),  # NumPy takes 2**32 - 1, and models count on from it
        ("KERNEL_EPOCHS", "12", 12),
        ("KERNEL_LEARNING_RATE", "5e-4", 0.0005),
        ("KERNEL_TIME_LIMIT", "3600", 3600.0),
        ("KERNEL_INPUT_DIR", "/data/my comments", Path("/data/my comments")),
        ("KERNEL_OUTPUT_DIR", "out", Path("out")),
        ("KERNEL_VECTOR_FILES", "one.vec", (Path("one.vec"),)),
        ("KERNEL_VECTOR_FILES", "/b/two.txt:a.vec.gz", (Path("/b/two.txt"), Path("a.vec.gz"))),
    ],
)
def test_value_is_read_from_the_environment(name, text, value):
    found = value_of(name, text)
    assert found == value
    assert type(found) is type(value)


def test_variables_are_set_side_by_side_and_others_are_ignored():
    environment = {
        "KERNEL_SEED": "7",
        "KERNEL_EPOCHS": "3",
        "PATH": "/bin",
        "KAGGLE_KERNEL_RUN_TYPE": "Batch",
        "SEED": "x",
    }
    assert kernel.settings_from(environment) == kernel.Settings(seed=7, epochs=3)


@pytest.mark.parametrize("name", ["KERNEL_SEEDS", "KERNEL_LSTM", "KERNEL_", "KERNEL_seed"])
def test_unknown_name_is_refused(name):
    with pytest.raises(ValueError) as refusal:
        kernel.settings_from({"KERNEL_SEED": "1", name: "1"})
    assert str(refusal.value).startswith(f"{name} is not a setting")
    assert all(known in str(refusal.value) for known in NAMES)


@pytest.mark.parametrize("text", ["", "many", "nan", "-1"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(("_DIR", "_FILES", "_FILE"))])
def test_number_that_makes_no_sense_is_refused(name, text):
    with pytest.raises(ValueError) as refusal:
        kernel.settings_from({name: text})
    assert str(refusal.value).startswith(f"{name}={text!r}: ")
    assert all(known in str(refusal.value) for known in NAMES)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("KERNEL_SEED", "2147483649"),
        ("KERNEL_SEED", "1.5"),
        ("KERNEL_EPOCHS", "0"),
        ("KERNEL_EPOCHS", "2.0"),
        ("KERNEL_BATCH_SIZE", "0"),
        ("KERNEL_LSTM_UNITS", "0"),
        ("KERNEL_MAX_TOKENS", "0"),
        ("KERNEL_HOLDOUT_SHARE", "0"),  # nothing to score the model on
        ("KERNEL_HOLDOUT_SHARE", "1"),  # nothing to learn from
        ("KERNEL_LEARNING_RATE", "0"),
        ("KERNEL_TIME_LIMIT", "0"),
        ("KERNEL_TIME_LIMIT", "inf"),
        ("KERNEL_TIME_LIMIT", "2h"),
        ("KERNEL_INPUT_DIR", ""),
        ("KERNEL_OUTPUT_DIR", ""),
        ("KERNEL_VECTOR_FILES", ""),
        ("KERNEL_VECTOR_FILES", "a.vec:"),
    ],
)
def test_value_out_of_range_or_empty_is_refused(name, text):
    with pytest.raises(ValueError, match=f"^{name}='{text}': "):
        kernel.settings_from({name: text})


def test_settings_cannot_be_changed_later():
    with pytest.raises(FrozenInstanceError):
        kernel.Settings().seed = 1


def attach(folder, *names):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("layout", [f"competitions/{COMPETITION}", COMPETITION, "datasets/somebody/copy/of the/files"])
def test_comments_are_found_in_every_layout(tmp_path, layout):
    attach(tmp_path / "another-competition", "train.csv", "test.csv")
    folder = attach(tmp_path / layout, *COMPETITION_FILES)
    assert kernel.find_input_dir(kernel.Settings(), tmp_path) == folder


@pytest.mark.parametrize(
    ("glove", "crawl"),
    [
        ("datasets/takuok/glove840b300dtxt", "datasets/yekenot/fasttext-crawl-300d-2m"),
        ("glove840b300dtxt", "fasttext-crawl-300d-2m"),
        ("datasets/takuok/glove840b300dtxt", "fasttext-crawl-300d-2m"),
        ("datasets/somebody/both/vectors", "datasets/somebody/both/vectors"),
    ],
)
def test_vectors_are_found_in_every_layout(tmp_path, glove, crawl):
    comments = attach(tmp_path / COMPETITION, *COMPETITION_FILES)
    expected = (attach(tmp_path / glove, GLOVE) / GLOVE, attach(tmp_path / crawl, CRAWL) / CRAWL)
    assert kernel.find_vector_files(kernel.Settings(), comments, tmp_path) == expected


def test_new_layout_goes_before_the_old_and_both_before_a_copy(tmp_path):
    attach(tmp_path / "a-copy", *COMPETITION_FILES, GLOVE, CRAWL)
    old = attach(tmp_path / COMPETITION, *COMPETITION_FILES)
    assert kernel.find_input_dir(kernel.Settings(), tmp_path) == old
    new = attach(tmp_path / "competitions" / COMPETITION, *COMPETITION_FILES)
    assert kernel.find_input_dir(kernel.Settings(), tmp_path) == new

    old_vectors = attach(tmp_path / "glove840b300dtxt", GLOVE)
    assert kernel.find_vector_files(kernel.Settings(), new, tmp_path)[0] == old_vectors / GLOVE
    new_vectors = attach(tmp_path / "datasets/takuok/glove840b300dtxt", GLOVE)
    assert kernel.find_vector_files(kernel.Settings(), new, tmp_path)[0] == new_vectors / GLOVE


def test_competition_that_is_not_attached_is_named(tmp_path):
    attach(tmp_path / "another-competition", "train.csv", "test.csv")
    with pytest.raises(FileNotFoundError) as refusal:
        kernel.find_input_dir(kernel.Settings(), tmp_path)
    for part in (*COMPETITION_FILES, f"competitions/{COMPETITION}", str(tmp_path), "KERNEL_INPUT_DIR"):
        assert part in str(refusal.value)
    assert f"Attach the competition {COMPETITION}" in str(refusal.value)


@pytest.mark.parametrize(
    ("attached", "missing", "dataset"),
    [
        ([], GLOVE, "takuok/glove840b300dtxt"),
        ([CRAWL], GLOVE, "takuok/glove840b300dtxt"),
        ([GLOVE], CRAWL, "yekenot/fasttext-crawl-300d-2m"),
    ],
)
def test_vectors_that_are_not_attached_are_named(tmp_path, attached, missing, dataset):
    folder = attach(tmp_path / "vectors", *attached)
    with pytest.raises(FileNotFoundError) as refusal:
        kernel.find_vector_files(kernel.Settings(), folder, tmp_path)
    for part in (missing, f"datasets/{dataset}", str(tmp_path), "KERNEL_VECTOR_FILES"):
        assert part in str(refusal.value)
    assert f"Attach the Kaggle dataset {dataset}" in str(refusal.value)


def test_settings_win_over_what_is_attached(tmp_path):
    kaggle_input, own = tmp_path / "input", tmp_path / "own"
    attached = attach(kaggle_input / COMPETITION, *COMPETITION_FILES, GLOVE, CRAWL)
    attach(own, *COMPETITION_FILES, "b.vec", "a.vec")
    settings = kernel.Settings(input_dir=own, vector_files=(own / "b.vec", own / "a.vec"))
    assert kernel.find_input_dir(settings, kaggle_input) == own
    assert kernel.find_vector_files(settings, attached, kaggle_input) == (own / "b.vec", own / "a.vec")


@pytest.mark.parametrize("missing", COMPETITION_FILES)
def test_file_missing_in_the_named_folder_is_named(tmp_path, missing):
    attach(tmp_path / "own", *(name for name in COMPETITION_FILES if name != missing))
    attach(tmp_path / "input" / COMPETITION, *COMPETITION_FILES)
    with pytest.raises(FileNotFoundError) as refusal:
        kernel.find_input_dir(kernel.Settings(input_dir=tmp_path / "own"), tmp_path / "input")
    assert str(tmp_path / "own" / missing) in str(refusal.value)


def test_missing_vector_file_is_named(tmp_path):
    attach(tmp_path, "there.vec", GLOVE, CRAWL)
    settings = kernel.Settings(vector_files=(tmp_path / "there.vec", tmp_path / "absent.vec"))
    with pytest.raises(FileNotFoundError) as refusal:
        kernel.find_vector_files(settings, tmp_path, tmp_path)
    assert str(tmp_path / "absent.vec") in str(refusal.value)


def test_outside_kaggle_the_sample_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    attach(tmp_path / "tests" / "sample", *COMPETITION_FILES)
    folder = kernel.find_input_dir(kernel.Settings(), tmp_path / "absent")
    assert folder == Path("tests/sample")
    assert kernel.find_vector_files(kernel.Settings(), folder, tmp_path / "absent") == (Path("embeddings/sample.vec"),)


@pytest.mark.parametrize("device, hours", [("gpu:0", 2), ("cpu:0", 9)])
def test_a_run_of_ones_own_comments_keeps_to_kaggles_limit_and_shows_none_of_them(tmp_path, monkeypatch, device, hours):
    attach(tmp_path, *COMPETITION_FILES, "own.vec")
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KERNEL_INPUT_DIR", str(tmp_path))
    monkeypatch.setenv("KERNEL_VECTOR_FILES", str(tmp_path / "own.vec"))
    monkeypatch.setenv("KERNEL_OUTPUT_DIR", str(tmp_path))
    names = vars(kernel) | {"clock": {}, "find_devices": lambda *arguments: [device]}
    kernel.run_cell(kernel.number_of_cell("settings = settings_from("), names)
    assert names["time_limit"] == hours * 3600 - 600
    assert names["show_comments"] is False
    monkeypatch.setenv("KERNEL_SHOW_COMMENTS", "yes")
    kernel.run_cell(kernel.number_of_cell("settings = settings_from("), names)
    assert names["show_comments"] is True


@pytest.mark.parametrize("name", ["KERNEL_COMPARE_FILES", "KERNEL_SENTENCES_FILE"])
def test_a_file_that_is_read_late_is_missed_at_once(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, str(tmp_path / "absent.csv"))
    monkeypatch.setenv("KERNEL_OUTPUT_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"{name}.*absent.csv"):
        kernel.run_cell(kernel.number_of_cell("settings = settings_from("), vars(kernel) | {"clock": {}})


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert value_of("KERNEL_OUTPUT_DIR", "~/results") == Path("/somewhere/results")
    assert value_of("KERNEL_VECTOR_FILES", "~/a.vec:b.vec") == (Path("/somewhere/a.vec"), Path("b.vec"))


def test_vectors_that_are_named_twice_count_once(tmp_path):
    (tmp_path / "own.vec").touch()
    settings = kernel.settings_from({"KERNEL_VECTOR_FILES": f"{tmp_path / 'own.vec'}:{tmp_path / 'own.vec'}"})
    assert kernel.find_vector_files(settings, tmp_path, tmp_path) == (tmp_path / "own.vec",)


def test_own_comments_outside_kaggle_need_own_vectors(tmp_path):
    with pytest.raises(FileNotFoundError, match="KERNEL_VECTOR_FILES"):
        kernel.find_vector_files(kernel.Settings(), attach(tmp_path, *COMPETITION_FILES), tmp_path / "absent")


def test_outside_kaggle_and_outside_the_repository_the_setting_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tests.sample.train\.csv.*KERNEL_INPUT_DIR"):
        kernel.find_input_dir(kernel.Settings(), tmp_path / "absent")
