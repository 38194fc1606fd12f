"""Seconds and peak memory of each section: python benchmarks/full_size.py FOLDER [--limit 3600]

Makes in FOLDER a stand-in for the competition's comments and two files of 300-d word vectors (12 GB
of disk), then runs the notebook's cells on them, to the last. Its results go to FOLDER/results.
"Not training" are all cells but the one that trains the models and scores with them.
"""

import json
import os
import time
from contextlib import redirect_stdout
from io import StringIO

from measure import files_of, parse_arguments, peak_memory, print_machine
from stand_in import make_competition, make_vectors

VECTOR_FILES = {"glove.txt": 2_200_000, "crawl.vec": 2_000_000}  # words, as the public ones


def make_data(folder, rows):
    words = []
    if not (folder / str(rows) / "sample_submission.csv").exists():
        words = make_competition(folder / str(rows), rows)
    for name, count in VECTOR_FILES.items():
        if not (folder / name).exists():
            words = words or make_competition(folder / "small", 10)
            endings = ("", "s", "ed", "ing", "er")
            known = [f"{word}{ending}" for ending in endings for word in words]
            make_vectors(folder / name, known[:count], 300, header=name.endswith(".vec"))


def run_cells():
    """Run all of the notebook's cells and print what each section took."""
    begun = section_begun = time.perf_counter()
    import kernel

    training = kernel.number_of_cell("threading.Thread(")
    section, peaks, names = "1 Problem, imports", [], {}
    for number, cell in enumerate([*kernel.CELLS, {"source": "## ", "cell_type": "markdown"}]):
        now, title = time.perf_counter(), "".join(cell["source"]).partition("\n")[0]
        if title.startswith("## "):
            peaks.append(peak_memory())
            seconds = now - section_begun
            print(f"  {section:30} {seconds:7.1f} s {peaks[-1]:7,.0f} MB at the peak", flush=True)
            section, section_begun = title.removeprefix("## "), now
        if cell["cell_type"] == "code":
            with redirect_stdout(StringIO()):
                kernel.run_cell(number, names)
        if number == training:
            trains_from, trains = now - begun, time.perf_counter() - now
    print(f"all {now - begun:,.0f} s, {now - begun - trains:,.0f} of them not training, ", end="")
    print(f"which begins after {trains_from:,.0f} s; peak {max(peaks):,.0f} MB")


def main():
    arguments = parse_arguments(__doc__, "folder", rows=1_800_000, limit=3600)
    print_machine("pandas", "scikit-learn", "tensorflow")
    make_data(arguments.folder, arguments.rows)
    print(f"\n{arguments.rows:,} rows, time limit {arguments.limit:,.0f} s", flush=True)
    input_dir, results = arguments.folder / str(arguments.rows), arguments.folder / "results"
    settings = {"input_dir": input_dir, "output_dir": results, "time_limit": arguments.limit}
    settings = files_of(arguments.folder) | settings
    os.environ |= {f"KERNEL_{name.upper()}": str(value) for name, value in settings.items()}
    run_cells()

    from runs import check_submission  # it imports what run_cells times

    report = json.loads((results / "report.json").read_text(encoding="utf-8"))
    epochs = [len(losses) for losses in report["losses"].values()]
    print(f"epochs of each model: {epochs}; {report['stopped_because']}")
    for pattern in ("*", "vectors_*.npy"):
        sizes = [path.stat().st_size / 1e6 for path in (results / "models").glob(pattern)]
        print(f"models/{pattern}: {sum(sizes):,.0f} MB")
    check_submission(results, input_dir)
    print("submission.csv is valid")


if __name__ == "__main__":
    main()
