"""Seconds and peak memory of the notebook's sections Comments to Batches: python benchmarks/full_size.py FOLDER

Makes in FOLDER stand-ins of 100,000, 400,000 and 1,800,000 rows and two files of 300-d word vectors (14 GB of disk),
then runs the notebook's own cells on each size in a new process, and sets the largest against the straight line through
the others.
"""

import os
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from measure import in_new_process, peak_memory, print_machine, reset_peak_memory
from stand_in import make_competition, make_vectors

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

SIZES = (100_000, 400_000, 1_800_000)
VECTOR_FILES = {"glove.txt": 2_200_000, "crawl.vec": 2_000_000}  # words, as the public ones


def make_data(folder):
    words = []
    for rows in SIZES:
        if not (folder / str(rows) / "sample_submission.csv").exists():
            words = make_competition(folder / str(rows), rows)
    for name, count in VECTOR_FILES.items():
        if not (folder / name).exists():
            words = words or make_competition(folder / "small", 10)
            known = [f"{word}{ending}" for ending in ("", "s", "ed", "ing", "er") for word in words][:count]
            make_vectors(folder / name, known, 300, header=name.endswith(".vec"))


def set_environment(folder, rows):
    vector_files = ":".join(str(folder / name) for name in VECTOR_FILES)
    os.environ |= {"KERNEL_INPUT_DIR": str(folder / str(rows)), "KERNEL_VECTOR_FILES": vector_files}
    os.environ |= {"KERNEL_OUTPUT_DIR": str(folder)}


def run_sections(_):
    """Run the notebook's cells up to the first batch; {section: (seconds, peak MB)} and what the matrix takes."""
    started = time.perf_counter()
    import kernel

    names, sections, ended = {}, {}, started
    for cell in kernel.CELLS:
        if cell["cell_type"] != "code":
            continue
        seen = set(names.get("clock", ()))
        with redirect_stdout(StringIO()):
            exec("".join(cell["source"]), names)
        for section in set(names.get("clock", ())) - seen:
            now = time.perf_counter()
            sections[section] = (now - ended, peak_memory())
            ended = now
            reset_peak_memory()
        if "Batches" in sections:
            break
    names["train_batches"][0]
    sections["to the first batch"] = (time.perf_counter() - started, max(peak for _, peak in sections.values()))
    return sections, names["embedding_matrix"].shape


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print_machine("pandas")
    make_data(folder)
    totals = {}
    for rows in SIZES:
        _, _, (sections, shape) = in_new_process(set_environment, run_sections, folder, rows)
        print(f"\n{rows:,} rows, embedding matrix {shape[0]:,} x {shape[1]}")
        for section, (seconds, megabytes) in sections.items():
            print(f"  {section:20} {seconds:6.1f} s  {megabytes:6,.0f} MB at the peak")
        totals[rows] = sections["to the first batch"][0]
    small, middle, large = SIZES
    slope = (totals[middle] - totals[small]) / (middle - small)
    line = totals[middle] + slope * (large - middle)
    print(f"\n{slope * 1e6:.0f} s a million rows; {large:,} rows take {totals[large] / line:.2f} of the straight line")
