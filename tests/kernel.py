"""The notebook's own definitions as a module: `import kernel; kernel.auc(…)` is the code that Kaggle runs.

Importing it executes the cells tagged `define` of kernel.ipynb, in order, and nothing else.
"""

import json
import linecache
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "kernel.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def run_cell(number, names):
    """Execute a cell in a dict of names, and keep its source for tracebacks, as Jupyter does it."""
    source, name = "".join(CELLS[number]["source"]), f"{NOTEBOOK.name}[{number}]"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), names)


def number_of_cell(text):
    """The number of the one cell that runs and holds the text."""
    running = [n for n, cell in enumerate(CELLS) if "run" in cell["metadata"].get("tags", [])]
    (number,) = (n for n in running if text in "".join(CELLS[n]["source"]))
    return number


for number, cell in enumerate(CELLS):
    if "define" in cell["metadata"].get("tags", []):
        run_cell(number, globals())
