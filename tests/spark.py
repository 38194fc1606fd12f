"""Scores many comments on Spark with README's own lines, on one core and on two: make test-spark.

    python tests/spark.py MODELS

Prints rows a second and the memory of Spark's Python processes, and fails where a row is missing,
a score differs from what the folder says here, or the memory grows.
"""

import contextlib
import itertools
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import psutil

ROOT = Path(__file__).parents[1]
ROWS = {1: 50_000, 2: 200_000}  # of cores
COMPARED = 1000
SUBMIT = [Path(sys.executable).with_name("spark-submit"), "--conf", "spark.ui.enabled=false"]
ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def lines_of_readme():
    """The code in README that scores on Spark."""
    blocks = re.findall("```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    [code] = [block for block in blocks if "mapInPandas" in block]
    return code


def write_comments(folder, rows):
    """The sample's comments, over and over, as a table of Spark. Returns them."""
    files = [ROOT / "tests" / "sample" / name for name in ("train.csv", "test.csv")]
    texts = pd.concat(pd.read_csv(file, keep_default_na=False)["comment_text"] for file in files)
    texts = list(itertools.islice(itertools.cycle(texts), rows))
    ids = [f"{place}" for place in range(rows)]
    folder.mkdir()
    pd.DataFrame({"id": ids, "comment_text": texts}).to_parquet(folder / "comments.parquet")
    return texts


def memory_of(process):
    """Megabytes in which Spark's Python processes reside, 0 before there are any."""
    total = 0
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one has just ended
            if "pyspark.daemon" in child.cmdline():
                total += child.memory_info().rss
    return total / 2**20


def watch(process):
    """Seconds from the first Python process to the end, and [megabytes] on the way."""
    begun, memory = time.perf_counter(), []
    while process.poll() is None:
        if megabytes := memory_of(process):
            memory.append(megabytes)
        if not memory:
            begun = time.perf_counter()
        time.sleep(0.2)
    return time.perf_counter() - begun, memory


def check(texts, shares, score):
    """shares: what Spark wrote, a row for each text."""
    assert sorted(map(int, shares["id"])) == list(range(len(texts)))
    shares = shares.set_index("id").loc[[f"{place}" for place in range(COMPARED)]]
    here = pd.DataFrame(score(texts[:COMPARED]))
    assert (abs(shares[here.columns].to_numpy() - here.to_numpy()) < 1e-5).all()


def measure(models, cores, rows):
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        shutil.copytree(models, place / "models")
        texts = write_comments(place / "comments", rows)
        (place / "lines.py").write_text(lines_of_readme(), "utf-8")
        command = [*SUBMIT, "--master", f"local[{cores}]", "lines.py"]
        with (place / "log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=place, env=os.environ | ENVIRONMENT, stdout=log, stderr=log
            )
            seconds, memory = watch(process)
        assert process.returncode == 0, (place / "log").read_text()[-5000:]
        score = runpy.run_path(f"{models}/toxicity.py")["load"](models)
        check(texts, pd.read_parquet(place / "scores"), score)
    early, late = (max(memory[len(memory) * part // 10 :][: len(memory) // 10]) for part in (2, 9))
    print(
        f"local[{cores}]: {rows:,} rows in {seconds:.0f} s, {rows / seconds:.0f} a second; "
        f"Python's processes {early:.0f} MiB after a fifth, {late:.0f} MiB at the end",
        flush=True,
    )
    assert late < 1.1 * early


if __name__ == "__main__":
    if not (shutil.which("java") or "JAVA_HOME" in os.environ):
        sys.exit("Spark needs Java 17 or 21; on Debian: apt-get install openjdk-17-jre-headless")
    for cores, rows in ROWS.items():
        measure(sys.argv[1], cores, rows)
