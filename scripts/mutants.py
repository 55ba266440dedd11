"""Estimate the mutation score of a package: the part of small defects that the tests find.

``python scripts/mutants.py PACKAGE [NUMBER [SEED]]`` changes one comparison, operator, constant, condition or call in a
copy of src/, NUMBER times at places drawn with SEED, and runs the tests in this process's checkout that name the
package: those over real sockets last, and only those whose file has the package's name. A mutant that no test finds is
printed.
"""

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path.cwd()
_COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_JOINS = {ast.And: ast.Or, ast.Or: ast.And}
_MIN_TIMEOUT = 60.0


class Mutant(NamedTuple):
    """A changed expression or statement of a file, by its place in the source."""

    path: Path
    line: int
    start: int
    end: int
    text: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file; each replaces the bytes from `start` to `end`."""
    source = path.read_bytes()
    starts = [0]
    for row in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(row))
    for node in ast.walk(ast.parse(source)):
        for text in _changes(node):
            assert isinstance(node, ast.expr | ast.stmt)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = starts[node.lineno - 1] + node.col_offset
            yield Mutant(path, node.lineno, start, starts[node.end_lineno - 1] + node.end_col_offset, text)


def _changes(node: ast.AST) -> Iterator[str]:
    """Yield the texts that may replace an expression or a statement."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield ast.unparse(ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS and not isinstance(node.left, ast.Constant):
        yield f"({ast.unparse(ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))})"
    elif isinstance(node, ast.BoolOp):
        yield f"({ast.unparse(ast.BoolOp(_JOINS[type(node.op)](), node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        yield repr(node.value + 1)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield "pass"
    elif isinstance(node, ast.IfExp):
        yield f"({ast.unparse(ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))})"


def test_files(package: str) -> list[str]:
    """Return the tests that name a package, its own folder first; those over real sockets that are named after it."""
    names = re.compile(rf"headgate\.{package.replace('/', '.')}\b|from headgate import")
    own = ROOT / "tests" / "unit" / package
    found = [
        path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if not {"e2e", "fuzz"} & set(path.parts) and own not in path.parents and names.search(path.read_text())
    ]
    real = sorted((ROOT / "tests" / "e2e").glob(f"test_{package}*.py"))
    return [str(path.relative_to(ROOT)) for path in [*([own] if own.exists() else []), *found, *real]]


def run(files: list[str], source: Path, timeout: float) -> bool:
    """Return whether the tests pass on a copy of the source."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", "not deep", *files]
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main(package: str, number: str = "25", seed: str = "1") -> None:
    """Print the mutants that survive, and the score."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        files = sorted((source / "headgate" / package).rglob("*.py"))
        places = [mutant for path in files for mutant in mutants(path)]
        drawn = random.Random(seed).sample(places, min(int(number), len(places)))  # a sample, no secret
        tests, began = test_files(package), time.monotonic()
        if not run(tests, source, 600.0):
            sys.exit(f"{package}: the tests fail without a change")
        timeout, survived = max(_MIN_TIMEOUT, 3 * (time.monotonic() - began)), 0
        for count, mutant in enumerate(drawn):
            original = mutant.path.read_bytes()
            mutant.path.write_bytes(original[: mutant.start] + mutant.text.encode() + original[mutant.end :])
            os.utime(mutant.path, (time.time(), count + 1))  # so that no compiled file of another mutant is used
            if run(tests, source, timeout):
                survived += 1
                place = f"{mutant.path.relative_to(source)}:{mutant.line}"
                print(f"{place}: {original[mutant.start : mutant.end].decode()!r} -> {mutant.text!r}", flush=True)
            mutant.path.write_bytes(original)
            os.utime(mutant.path, (time.time(), count + 1 + len(drawn)))
        print(f"{package}: {len(drawn) - survived} of {len(drawn)} mutants found", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
