"""The notebook's own definitions as a module: `import kernel; kernel.auc(…)` is the code that
Kaggle runs.

Importing it executes the cells tagged `define` of kernel.ipynb, in order, and nothing else.
"""

import json
import linecache
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "kernel.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def cells_tagged(tag):
    """The numbers of the cells that carry a tag."""
    for number, cell in enumerate(CELLS):
        if tag in cell["metadata"].get("tags", []):
            yield number


def run_cell(number, names):
    """Execute a cell in a dict of names, and keep its source for tracebacks, as Jupyter does it."""
    source = "".join(CELLS[number]["source"])
    name = f"{NOTEBOOK.name}[{number}]"
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)
    exec(compile(source, name, "exec"), names)


def number_of_cell(text):
    """The number of the one cell that runs and holds the text."""
    found = []
    for number in cells_tagged("run"):
        if text in "".join(CELLS[number]["source"]):
            found.append(number)
    (number,) = found
    return number


def run_cells(names, *texts):
    """Execute in a dict of names the cells that hold the texts."""
    for text in texts:
        run_cell(number_of_cell(text), names)


for number in cells_tagged("define"):
    run_cell(number, globals())
