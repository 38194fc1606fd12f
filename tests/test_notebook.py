"""What every cell of the notebook is held to, and what its stored outputs must be."""

import ast
import re
import sys

import kernel
import pytest

CODE_CELLS = [
    pytest.param(cell, id=f"cell {number}") for number, cell in enumerate(kernel.CELLS) if cell["cell_type"] == "code"
]
PACKAGES = {"tensorflow", "torch", "keras", "numpy", "pandas", "sklearn", "matplotlib", "IPython"}


def tree(cell):
    return ast.parse("".join(cell["source"]))


def outputs():
    return [output for cell in CODE_CELLS for output in cell.values[0]["outputs"]]


@pytest.mark.parametrize("cell", CODE_CELLS)
def test_every_cell_either_defines_or_runs(cell):
    assert len({"define", "run"} & set(cell["metadata"]["tags"])) == 1


@pytest.mark.parametrize("cell", [c for c in CODE_CELLS if "define" in c.values[0]["metadata"]["tags"]])
def test_cells_that_define_do_nothing_else(cell):
    for statement in tree(cell).body:
        if isinstance(statement, ast.Assign):
            names = [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]
            assert all(name.isupper() for name in names), "not a constant"
        else:
            assert isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)


@pytest.mark.parametrize("cell", [c for c in CODE_CELLS if "run" in c.values[0]["metadata"]["tags"]])
def test_cells_that_run_define_nothing(cell):
    assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree(cell)))


def test_only_kaggles_own_packages_are_imported():
    imported = set()
    for cell in CODE_CELLS:
        for node in ast.walk(tree(cell.values[0])):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
    assert imported <= PACKAGES | sys.stdlib_module_names


def test_classes_and_functions_of_more_than_a_few_lines_have_docstrings():
    for cell in CODE_CELLS:
        for node in tree(cell.values[0]).body:
            if isinstance(node, ast.ClassDef) or isinstance(node, ast.FunctionDef) and len(node.body) > 2:
                assert ast.get_docstring(node), node.name


def lines_of_code(cell):
    """Number of lines without the blank ones, comments and docstrings: ast.unparse knows no others."""
    module = tree(cell)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return sum(line.strip() != "" for line in ast.unparse(module).splitlines())


def test_the_notebook_can_be_read_in_one_sitting():
    assert sum(lines_of_code(cell.values[0]) for cell in CODE_CELLS) <= 1170


def test_stored_outputs_are_those_of_one_run_from_top_to_bottom():
    assert [cell.values[0]["execution_count"] for cell in CODE_CELLS] == list(range(1, len(CODE_CELLS) + 1))


def test_stored_outputs_hold_no_warning_no_path_and_no_time():
    for output in outputs():
        assert output["output_type"] in {"stream", "display_data", "execute_result"}
        assert output.get("name") != "stderr", output
        texts = [*output.get("text", []), *output.get("data", {}).get("text/plain", [])]
        for text in texts:
            assert not re.search(r"/(root|home|tmp|Users|mnt)/|[A-Z]:\\|\bs left\b|\d\d:\d\d", text), text


def test_stored_outputs_show_pictures_and_end_with_the_final_score():
    assert sum("image/png" in output.get("data", {}) for output in outputs()) >= 6
    texts = [
        text for cell in CODE_CELLS[-3:] for output in cell.values[0]["outputs"] for text in output.get("text", "")
    ]
    assert re.search(r"Final score on the holdout: 0\.\d{4}\n", "".join(texts))
