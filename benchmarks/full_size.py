"""Seconds and peak memory of each section of a whole run: python benchmarks/full_size.py FOLDER [--limit 3600]

Makes in FOLDER a stand-in for the competition's comments and two files of 300-d word vectors (12 GB of disk), then runs
the notebook's cells on them, to the last, in a new process. Its results go to FOLDER/results.
"""

import argparse
import os
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import pandas as pd
from measure import in_new_process, peak_memory, print_machine, reset_peak_memory
from stand_in import make_competition, make_vectors

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

VECTOR_FILES = {"glove.txt": 2_200_000, "crawl.vec": 2_000_000}  # words, as the public ones
TRAINING = ("CNN", "Training", "Student")  # the sections that train; all others are what a run needs besides


def make_data(folder, rows):
    words = []
    if not (folder / str(rows) / "sample_submission.csv").exists():
        words = make_competition(folder / str(rows), rows)
    for name, count in VECTOR_FILES.items():
        if not (folder / name).exists():
            words = words or make_competition(folder / "small", 10)
            known = [f"{word}{ending}" for ending in ("", "s", "ed", "ing", "er") for word in words][:count]
            make_vectors(folder / name, known, 300, header=name.endswith(".vec"))


def set_environment(folder, rows, limit):
    vector_files = ":".join(str(folder / name) for name in VECTOR_FILES)
    os.environ |= {"KERNEL_INPUT_DIR": str(folder / str(rows)), "KERNEL_VECTOR_FILES": vector_files}
    os.environ |= {"KERNEL_OUTPUT_DIR": str(folder / "results"), "KERNEL_TIME_LIMIT": str(limit)}


def run_notebook(_):
    """Run all of the notebook's cells: {section: (seconds, peak MB)}, and a dict of what was done."""
    begun = time.perf_counter()
    import kernel

    fit, fits = kernel.keras.Model.fit, []

    def fit_and_note(model, *arguments, **options):
        fits.append(time.perf_counter() - begun)
        return fit(model, *arguments, **options)

    kernel.keras.Model.fit = fit_and_note
    names, sections, ended = {}, {}, begun
    cells = [number for number, cell in enumerate(kernel.CELLS) if cell["cell_type"] == "code"]
    for number in cells:
        seen = set(names.get("clock", ()))
        with redirect_stdout(StringIO()):
            kernel.run_cell(number, names)
        for section in set(names["clock"]) - seen or ({"Report"} if number == cells[-1] else ()):
            seconds, megabytes = sections[section] = (time.perf_counter() - ended, peak_memory())
            ended = time.perf_counter()
            reset_peak_memory()
            print(f"  {section:20} {seconds:7.1f} s {megabytes:7,.0f} MB at the peak", flush=True)
    done = ("trained_on", "epochs_done", "models_averaged", "stopped_because")
    return sections, {"training begins": round(fits[0])} | {name: names["report"][name] for name in done}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write; outside the repository")
    parser.add_argument("--rows", type=int, default=1_800_000, help="of train.csv (default: 1800000)")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that the run may take (default: 3600)")
    arguments = parser.parse_args()
    print_machine("pandas", "scikit-learn", "tensorflow")
    make_data(arguments.folder, arguments.rows)
    print(f"\n{arguments.rows:,} rows, time limit {arguments.limit:,.0f} s")
    seconds, _, (sections, done) = in_new_process(
        set_environment, run_notebook, arguments.folder, arguments.rows, arguments.limit
    )
    besides = sum(seconds for name, (seconds, _) in sections.items() if name not in TRAINING)
    print(f"all {seconds:,.0f} s, {besides:,.0f} of them not training; ", end="")
    print(f"peak {max(peak for _, peak in sections.values()):,.0f} MB")
    print(", ".join(f"{name}: {value}" for name, value in done.items()))
    submission = pd.read_csv(arguments.folder / "results" / "submission.csv")
    valid = submission["prediction"].between(0, 1).all() and submission["id"].is_unique
    print(f"submission.csv: {len(submission):,} rows, {'valid' if valid else 'NOT VALID'}")
