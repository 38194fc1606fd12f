"""Kill a run and start it again: python benchmarks/kills.py [--kills 50] [--in-a-row 3] [--rows 1500] [--data FOLDER]

Runs the notebook in an empty folder, kills it (SIGKILL) at a random moment, looks whether every file that stands there
is whole, and gives the same command again; after a few kills in a row it may end. The submission must then be, byte for
byte, that of a run that nobody disturbed. It reads the first rows of the sample or of FOLDER, as in experiment.py.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import pandas as pd
from experiment import vector_files
from measure import print_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import kernel
from runs import SAMPLE, VECTORS, copy_of_sample, kill, start_notebook

SETTINGS = {"models": 3, "epochs": 1, "lstm_units": 8, "cnn_epochs": 0}


def check_files(output_dir, test_ids):
    """Raise an error where a file under its final name is not whole; the names of those that are there, list of str."""
    found = sorted(str(path.relative_to(output_dir)) for path in output_dir.rglob("*") if path.is_file())
    found = [name for name in found if not name.endswith((".part", "run.ipynb"))]
    for name in found:
        path = output_dir / name
        if path.name == "submission.csv":
            submission = pd.read_csv(path, dtype={"id": str})
            assert list(submission["id"]) == test_ids and submission["prediction"].between(0, 1).all()
        elif path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".csv":
            pd.read_csv(path)
        elif path.suffix in (".npy", ".npz"):
            arrays = np.load(path)
            assert all(np.isfinite(array).all() for array in (arrays.values() if path.suffix == ".npz" else [arrays]))
        elif path.suffix == ".py":
            compile(path.read_text(encoding="utf-8"), path, "exec")
    if (output_dir / "models" / "models.json").exists():
        assert 0 < kernel.load(output_dir / "models")("a comment")["toxicity"] < 1
    return found


def kill_at(moment, output_dir, settings):
    """Start a run and kill it after so many seconds, unless it has ended: what happened, str."""
    process = start_notebook(output_dir, **settings)
    try:
        assert process.wait(moment) == 0
        return "ended before"
    except subprocess.TimeoutExpired:
        kill(process)
        return "killed after"


def run_to_the_end(output_dir, settings):
    """The bytes of the submission of a run that nobody disturbs."""
    assert start_notebook(output_dir, **settings).wait() == 0
    return (output_dir / "submission.csv").read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--in-a-row", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--data", type=Path)
    arguments = parser.parse_args()
    print_machine("keras", "tensorflow")
    generator, differ = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        comments = copy_of_sample(folder / "comments", arguments.rows, arguments.data or SAMPLE)
        vectors = vector_files(arguments.data) if arguments.data else VECTORS
        settings = SETTINGS | {"input_dir": comments, "vector_files": vectors}
        test_ids = list(pd.read_csv(comments / "sample_submission.csv", dtype=str)["id"])
        begun = time.monotonic()
        expected = run_to_the_end(folder / "undisturbed", settings)
        seconds = time.monotonic() - begun
        print(f"undisturbed: {seconds:.0f} s")
        for number in range(1, arguments.kills + 1):
            output_dir = folder / str((number - 1) // arguments.in_a_row)
            moment = generator.uniform(0, seconds)
            what = kill_at(moment, output_dir, settings)
            found = check_files(output_dir, test_ids)
            models = sum(name.startswith("models/model_") for name in found)
            print(f"{number:2} {what} {moment:5.1f} s: {models} models among {len(found)} whole files", flush=True)
            if number % arguments.in_a_row == 0 or number == arguments.kills:
                same = run_to_the_end(output_dir, settings) == expected
                differ += not same
                print(f"   {'the same submission' if same else 'ANOTHER SUBMISSION'}", flush=True)
    sys.exit(differ)


if __name__ == "__main__":
    main()
