"""Settings: what the environment can set, and where the files are found."""

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import kernel
import pytest
from runs import environment_of

COMPETITION = "jigsaw-unintended-bias-in-toxicity-classification"
COMPETITION_FILES = ("train.csv", "test.csv", "sample_submission.csv")
GLOVE, CRAWL = "glove.840B.300d.txt", "crawl-300d-2M.vec"
NAMES = [f"KERNEL_{field.name.upper()}" for field in fields(kernel.Settings)]


def value_of(name, text):
    return getattr(kernel.settings_from({name: text}), name.removeprefix("KERNEL_").lower())


def test_without_variables_every_setting_has_its_default():
    assert kernel.settings_from({}) == kernel.Settings()


def test_every_default_lies_within_its_own_limits():
    """But for those that are to be found out: none, nothing, and 0."""
    given = {f"KERNEL_{field.name.upper()}": str(field.default) for field in fields(kernel.Settings) if field.default}
    given |= {name: "yes" if text == "True" else text for name, text in given.items()}
    assert len(given) >= 8 and kernel.settings_from(given) == kernel.Settings()


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
        ("KERNEL_VECTOR_FILES", "/b/two.txt:a.vec", (Path("/b/two.txt"), Path("a.vec"))),
        ("KERNEL_SWAP_TERMS", "no", False),
        ("KERNEL_SHOW_COMMENTS", "yes", True),
    ],
)
def test_value_is_read_from_the_environment(name, text, value):
    found = value_of(name, text)
    assert found == value
    assert type(found) is type(value)


def test_variables_are_set_side_by_side_and_others_are_ignored():
    """Those of Jupyter, too, which begin like those of the notebook."""
    others = {"PATH": "/bin", "KAGGLE_KERNEL_RUN_TYPE": "Batch", "SEED": "x", "KERNEL_ID": "7"}
    given = {"KERNEL_SEED": "7", "KERNEL_EPOCHS": "3"}
    assert kernel.settings_from(given | others) == kernel.Settings(seed=7, epochs=3)


@pytest.mark.parametrize("name", ["KERNEL_SEEDS", "KERNEL_LSTM", "KERNEL_", "KERNEL_seed"])
def test_unknown_name_is_refused(name):
    with pytest.raises(ValueError) as refusal:
        kernel.settings_from({"KERNEL_SEED": "1", name: "1"})
    assert str(refusal.value).startswith(f"{name} is not a setting")
    assert all(known in str(refusal.value) for known in NAMES)


@pytest.mark.parametrize("text", ["", "many", "nan", "-1"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(("_DIR", "_FILES"))])
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
        ("KERNEL_COMPARE_FILES", ""),
        ("KERNEL_SWAP_TERMS", "True"),
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


def find(settings, kaggle_input):
    """The folder of the comments, and the vector files."""
    folder, vectors = kernel.find_files(settings, kaggle_input)
    return folder, [*vectors]


@pytest.mark.parametrize("layout", [f"competitions/{COMPETITION}", COMPETITION, "datasets/somebody/copy/of the/files"])
def test_comments_are_found_in_every_layout(tmp_path, layout):
    attach(tmp_path / "another-competition", "train.csv", "test.csv")
    attach(tmp_path / "vectors", GLOVE, CRAWL)
    folder = attach(tmp_path / layout, *COMPETITION_FILES)
    assert find(kernel.Settings(), tmp_path)[0] == folder


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
    attach(tmp_path / COMPETITION, *COMPETITION_FILES)
    expected = [attach(tmp_path / glove, GLOVE) / GLOVE, attach(tmp_path / crawl, CRAWL) / CRAWL]
    assert find(kernel.Settings(), tmp_path)[1] == expected


def test_new_layout_goes_before_the_old_and_both_before_a_copy(tmp_path):
    copy = attach(tmp_path / "a-copy", *COMPETITION_FILES, GLOVE, CRAWL)
    assert find(kernel.Settings(), tmp_path) == (copy, [copy / GLOVE, copy / CRAWL])
    for layout in ("", "competitions"):
        comments = attach(tmp_path / layout / COMPETITION, *COMPETITION_FILES)
        vectors = attach(tmp_path / layout.replace("competitions", "datasets/takuok") / "glove840b300dtxt", GLOVE)
        assert find(kernel.Settings(), tmp_path) == (comments, [vectors / GLOVE, copy / CRAWL])


@pytest.mark.parametrize(
    ("attached", "missing", "source"),
    [
        ([], ".csv", COMPETITION),
        ([GLOVE, CRAWL], ".csv", COMPETITION),
        (COMPETITION_FILES, GLOVE, "takuok/glove840b300dtxt"),
        ([*COMPETITION_FILES, CRAWL], GLOVE, "takuok/glove840b300dtxt"),
        ([*COMPETITION_FILES, GLOVE], CRAWL, "yekenot/fasttext-crawl-300d-2m"),
    ],
)
def test_what_is_not_attached_is_named(tmp_path, attached, missing, source):
    attach(tmp_path / "data", *attached)
    with pytest.raises(FileNotFoundError) as refusal:
        find(kernel.Settings(), tmp_path)
    for part in (missing, f"Attach {source}", str(tmp_path), "KERNEL_INPUT_DIR", "KERNEL_VECTOR_FILES"):
        assert part in str(refusal.value)


def test_settings_win_over_what_is_attached(tmp_path):
    attach(tmp_path / "input" / COMPETITION, *COMPETITION_FILES, GLOVE, CRAWL)
    own = attach(tmp_path / "own", *COMPETITION_FILES, "b.vec", "a.vec")
    files = own / "b.vec", own / "a.vec"
    assert find(kernel.Settings(own, files), tmp_path / "input") == (own, [*files])
    assert find(kernel.Settings(vector_files=files), tmp_path / "input") == (tmp_path / "input" / COMPETITION, [*files])


@pytest.mark.parametrize("missing", [*COMPETITION_FILES, "own.vec", "other.csv"])
def test_a_named_file_that_is_missing_is_named_before_anything_is_read(tmp_path, missing):
    """Even if one of that name is attached, or it is read late."""
    attach(tmp_path / "input" / COMPETITION, *COMPETITION_FILES, GLOVE, CRAWL)
    own = attach(tmp_path / "own", *({*COMPETITION_FILES, "own.vec", "other.csv"} - {missing}))
    settings = kernel.Settings(own, (own / "own.vec",), compare_files=(own / "other.csv",))
    with pytest.raises(FileNotFoundError, match=f"{own / missing} is missing.*KERNEL_INPUT_DIR"):
        find(settings, tmp_path / "input")


def test_outside_kaggle_the_sample_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tests.sample.train\.csv.*KERNEL_INPUT_DIR"):
        find(kernel.Settings(), tmp_path / "absent")
    attach(tmp_path / "tests" / "sample", *COMPETITION_FILES)
    attach(tmp_path / "embeddings", "sample.vec")
    expected = Path("tests/sample"), [Path("embeddings/sample.vec")]
    assert find(kernel.Settings(), tmp_path / "absent") == expected


def test_own_comments_outside_kaggle_need_own_vectors(tmp_path):
    with pytest.raises(FileNotFoundError, match="KERNEL_VECTOR_FILES"):
        find(kernel.Settings(attach(tmp_path, *COMPETITION_FILES)), tmp_path / "absent")


def test_vectors_that_are_named_twice_count_once(tmp_path):
    own = attach(tmp_path, *COMPETITION_FILES, "own.vec") / "own.vec"
    assert find(kernel.Settings(tmp_path, (own, own)), tmp_path)[1] == [own]


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert value_of("KERNEL_OUTPUT_DIR", "~/results") == Path("/somewhere/results")
    assert value_of("KERNEL_VECTOR_FILES", "~/a.vec:b.vec") == (Path("/somewhere/a.vec"), Path("b.vec"))


@pytest.mark.parametrize("device, hours", [("gpu:0", 2), ("cpu:0", 9)])
def test_a_run_of_ones_own_comments_keeps_to_kaggles_limit(tmp_path, monkeypatch, device, hours):
    attach(tmp_path, *COMPETITION_FILES, "own.vec")
    given = {"input_dir": tmp_path, "vector_files": tmp_path / "own.vec", "output_dir": tmp_path}
    monkeypatch.setattr(kernel.os, "environ", environment_of(given))
    names = vars(kernel) | {"start": 7.0, "find_devices": lambda workers: [device]}
    kernel.run_cell(kernel.number_of_cell("settings = settings_from("), names)
    assert names["settings"].time_limit == hours * 3600 - 600
    assert names["end"] == 7 + hours * 3600 - 600
