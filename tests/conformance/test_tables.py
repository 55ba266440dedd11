"""The tables in docs/conformance: every row names a clause, a file that is there, and a test that quotes the clause."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = sorted((ROOT / "docs" / "conformance").glob("*.md"))


def rows(table):
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.read_text().splitlines() if line.startswith("| ")]
    return [tuple(cell.strip().replace("\\|", "|") for cell in row) for row in cells if row[0].strip() != "clause"]


def quoting_tests(table):
    """Give each test of the document's file with its docstring in one line."""
    tree = ast.parse((ROOT / "tests" / "conformance" / f"test_{table.stem}.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    return {
        f"{node.name}.{test.name}": " ".join((ast.get_docstring(test) or "").split())
        for node in classes
        for test in node.body
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
    }


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_no_cell_is_empty_and_every_test_quotes_its_clause(table):
    tests = quoting_tests(table)
    assert rows(table)
    for clause, file, test in rows(table):
        path = re.fullmatch(r"\[[^\]]+\]\(([^)]+)\)", file)
        assert path, file
        assert (table.parent / path[1]).is_file(), file
        assert clause
        assert clause in tests[test.strip("`")], test


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_test_that_quotes_is_in_the_table(table):
    assert sorted(test.strip("`") for _, _, test in rows(table)) == sorted(quoting_tests(table))


def test_there_is_a_table_for_each_document_with_tests():
    documents = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")} - {"tables"}
    assert documents == {table.stem for table in TABLES}
