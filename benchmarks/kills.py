"""Kill a run and start it again: python benchmarks/kills.py [--kills 50] [--in-a-row 3] [--rows 1500] [--data FOLDER]

Runs the notebook in an empty folder, kills it (SIGKILL) at a random moment, looks whether every file that stands there
is whole, and gives the same command again; after a few kills in a row it may end. The submission must then be, byte for
byte, that of a run that nobody disturbed. It reads the first rows of the sample or of FOLDER, as in experiment.py.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from measure import files_of, parse_arguments, print_machine

# isort: split
import kernel
import numpy as np
import pandas as pd
from runs import SAMPLE, VECTORS, check_submission, copy_of_sample, kill, run_notebook, start_notebook

READERS = {  # of each kind of file, that raise an error where it is not whole
    ".csv": pd.read_csv,
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".npy": np.load,
    ".npz": lambda path: dict(np.load(path)),
    ".py": lambda path: compile(path.read_text(encoding="utf-8"), path, "exec"),
}


def check_files(output_dir, input_dir):
    """Raise an error where a file under its final name is not whole; the names of those that are there, list of str."""
    found = [path for path in output_dir.rglob("*") if path.is_file() and path.suffix not in (".part", ".ipynb")]
    for path in found:
        READERS.get(path.suffix, Path.read_bytes)(path)
        if path.name == "submission.csv":
            check_submission(output_dir, input_dir)
        if path.name == "models.json":
            assert 0 < kernel.load(path.parent)("a comment")["toxicity"] < 1
    return [path.name for path in found]


def kill_at(moment, output_dir, settings):
    """Start a run and kill it after so many seconds, unless it has ended: what happened, str."""
    process = start_notebook(output_dir, **settings)
    with suppress(subprocess.TimeoutExpired):
        assert process.wait(moment) == 0
        return "ended before"
    kill(process)
    return "killed after"


def run_to_the_end(output_dir, settings):
    """The bytes of the submission of a run that nobody disturbs."""
    run_notebook(output_dir, **settings)
    return (output_dir / "submission.csv").read_bytes()


def main():
    arguments = parse_arguments(__doc__, kills=50, in_a_row=3, rows=1500, data=SAMPLE)
    print_machine("keras", "tensorflow")
    generator, differ = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        comments = copy_of_sample(folder / "comments", arguments.rows, arguments.data)
        settings = {"models": 3, "epochs": 1, "lstm_units": 8, "vector_files": VECTORS}
        settings |= files_of(arguments.data) | {"input_dir": comments}
        begun = time.monotonic()
        expected = run_to_the_end(folder / "undisturbed", settings)
        seconds = time.monotonic() - begun
        print(f"undisturbed: {seconds:.0f} s")
        for number in range(1, arguments.kills + 1):
            output_dir = folder / str((number - 1) // arguments.in_a_row)
            moment = generator.uniform(0, 0.8 * seconds)  # what goes on takes less
            what, found = kill_at(moment, output_dir, settings), check_files(output_dir, comments)
            models = sum(name.startswith("model_") for name in found)
            print(f"{number:2} {what} {moment:5.1f} s: {models} models among {len(found)} whole files", flush=True)
            if number % arguments.in_a_row == 0 or number == arguments.kills:
                same = run_to_the_end(output_dir, settings) == expected
                differ += not same
                print(f"   {'the same submission' if same else 'ANOTHER SUBMISSION'}", flush=True)
    sys.exit(differ)


if __name__ == "__main__":
    main()
