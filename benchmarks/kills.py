"""Kill a run and start it again: python benchmarks/kills.py [--kills 50] [--rows 1500]

Each round runs the notebook on the first rows of the sample in an empty folder, kills it (SIGKILL) at a random moment,
looks whether every file that stands there is whole, and gives the same command again. The submission must be, byte for
byte, that of a run that nobody disturbed.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import pandas as pd
from measure import print_machine

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import kernel
from runs import VECTORS, copy_of_sample, kill, start_notebook

SETTINGS = {"vector_files": VECTORS, "models": 3, "epochs": 1, "lstm_units": 8, "cnn_epochs": 0}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=1500)
    arguments = parser.parse_args()
    print_machine("keras", "tensorflow")
    generator, differ = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        settings = SETTINGS | {"input_dir": copy_of_sample(folder / "comments", arguments.rows)}
        test_ids = list(pd.read_csv(folder / "comments" / "sample_submission.csv", dtype=str)["id"])
        begun = time.monotonic()
        assert start_notebook(folder / "undisturbed", **settings).wait() == 0
        seconds = time.monotonic() - begun
        expected = (folder / "undisturbed" / "submission.csv").read_bytes()
        print(f"undisturbed: {seconds:.0f} s")
        for number in range(1, arguments.kills + 1):
            output_dir, moment = folder / str(number), generator.uniform(0, seconds)
            process = start_notebook(output_dir, **settings)
            time.sleep(moment)
            kill(process)
            found = check_files(output_dir, test_ids)
            models = sum(name.startswith("models/model_") for name in found)
            begun = time.monotonic()
            assert start_notebook(output_dir, **settings).wait() == 0
            same = (output_dir / "submission.csv").read_bytes() == expected
            differ += not same
            print(
                f"{number:2} killed after {moment:4.1f} s, {models} models and {len(found)} whole files; then "
                f"{time.monotonic() - begun:.0f} s, {'the same submission' if same else 'ANOTHER SUBMISSION'}",
                flush=True,
            )
    sys.exit(differ)


if __name__ == "__main__":
    main()
