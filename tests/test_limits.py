"""A run ends in time. Too little disk or memory, or a folder that cannot be written to, is told before any training."""

import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import kernel
import pytest
from runs import VECTORS, check_submission, copy_of_sample, run_sections

ROOT = kernel.NOTEBOOK.parent
OWN_MOUNTS = ["unshare", "--map-root-user", "--mount"]
PYTHON = """
import sys
sys.path.insert(0, "tests")
from pathlib import Path
from runs import run_sections
run_sections("13 Submission", input_dir=sys.argv[1], vector_files=sys.argv[2], output_dir=sys.argv[3])
"""


@pytest.mark.parametrize("epochs, fewest_models", [(1000, 1), (2, 2)])
def test_a_run_ends_inside_its_time_limit(tmp_path, monkeypatch, epochs, fewest_models):
    """One model that cannot be trained in full, or as many as fit. Time passes only when the notebook looks at it."""
    folder, looks = copy_of_sample(tmp_path / "comments", rows=1501), itertools.count(1)
    settings = {"input_dir": folder, "vector_files": VECTORS, "output_dir": tmp_path}
    settings |= {"time_limit": 44, "epochs": epochs, "models": 1000, "lstm_units": 8}
    for name, value in settings.items():
        monkeypatch.setenv(f"KERNEL_{name.upper()}", str(value))
    monkeypatch.setattr(time, "monotonic", lambda: next(looks) * 0.02)
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for number, cell in enumerate(kernel.CELLS):
            if cell["cell_type"] == "code":
                kernel.run_cell(number, names)
    assert next(looks) * 0.02 < 44
    left = names["clock"]["Start"] + 44 - names["deadline"] - names["seconds_to_evaluate"]
    assert left == pytest.approx(44 / 4)  # a quarter: pictures, files, trying the folder
    assert 0.6 * names["deadline"] < names["clock"]["Training"] < 44  # no model is begun that could not be trained
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["stopped_because"] == "time limit"
    assert fewest_models <= report["models_averaged"] <= len(report["epochs_done"])
    assert max(report["epochs_done"]) <= epochs
    check_submission(tmp_path, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return copy_of_sample(tmp_path_factory.mktemp("limits") / "comments", rows=400)


def run_on_mount(folder, output_dir, options):
    """What a run says that writes to a file system of its own, in memory."""
    script = 'mount -t tmpfs -o "$1" none "$2" && exec "$3" -c "$4" "$5" "$6" "$2"'
    arguments = map(str, (options, output_dir, sys.executable, PYTHON, folder, VECTORS))
    done = subprocess.run([*OWN_MOUNTS, "sh", "-c", script, "sh", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode
    return done.stderr


def may_mount(folder):
    command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", str(folder)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "options, said",
    [
        ("size=100k", r"KERNEL_OUTPUT_DIR=\S+: \d+ MB are needed and 0 MB are free"),
        ("size=8m", r"KERNEL_OUTPUT_DIR=\S+: \d+ MB are needed and 8 MB are free"),
        ("ro", r"Read-only file system: \S+"),
    ],
)
def test_a_folder_that_cannot_hold_the_results(tmp_path, folder, options, said):
    if not may_mount(tmp_path):
        pytest.skip("mounts are not allowed here")
    assert re.search(said, run_on_mount(folder, tmp_path, options))


def test_a_folder_below_a_file_is_named(tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=f"{tmp_path}/file"):
        run_sections("3 Comments", input_dir=folder, vector_files=VECTORS, output_dir=tmp_path / "file" / "results")


def test_comments_that_memory_cannot_hold(tmp_path, folder):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    os.truncate(tmp_path / "train.csv", 10**12)  # a hole: it takes no space on the disk
    with pytest.raises(OSError, match=r"Memory: 5,000,\d+ MB are needed and [\d,]+ MB are free"):
        run_sections("3 Comments", input_dir=tmp_path, vector_files=VECTORS, output_dir=tmp_path / "results")


def test_free_memory_is_what_the_machine_and_the_limit_of_the_process_leave():
    available = int(re.search(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024
    assert 0 < kernel.free_memory() <= 1.2 * available
    code = (
        "import sys; sys.path.insert(0, 'tests'); import kernel, resource, re;"
        "used = 1024 * int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]);"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 10**8, used + 10**8)); print(kernel.free_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert 0 < int(done.stdout) <= 10**8


@pytest.mark.parametrize("needed, free", [(2_000_000, 1_999_999), (1, 0), (5e12, 3e9)])
def test_too_little_is_said_in_megabytes(needed, free):
    with pytest.raises(
        OSError, match=rf"^the disk: {needed / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB are free"
    ):
        kernel.refuse_too_little("the disk", needed, free)


def test_enough_is_enough():
    kernel.refuse_too_little("the disk", 1, 1)
    kernel.refuse_too_little("memory", 10**12, float("inf"))  # where it is not known
