"""Count the weight of the tree and compare it with the numbers of weight.toml: part of `make lint`.

A logical line is a statement: one NEWLINE of `tokenize`, without docstrings, imports and `__all__`. Formatting and
comments cost nothing. `--lower` writes the numbers that have fallen; a number rises only by hand, with its reason in
the commit.
"""

import ast
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
FILE = ROOT / "weight.toml"
_SOURCE = ROOT / "src" / "headgate"
_TOOLS = ("bench", "scripts")
_LARGEST = 5

Weight = dict[str, dict[str, int]]
"""Numbers by table and name, as in weight.toml."""


def logical_lines(source: str) -> int:
    """Return the number of statements of a module, without docstrings, imports and `__all__`."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if _is_free(node):
            assert isinstance(node, ast.stmt)
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = iter(source.splitlines(keepends=True))
    tokens = tokenize.generate_tokens(lambda: next(lines, ""))
    return sum(token.type == tokenize.NEWLINE and token.start[0] not in skipped for token in tokens)


def _is_free(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _logical(paths: Iterable[Path]) -> int:
    return sum(logical_lines(path.read_text(encoding="utf-8")) for path in paths)


def _physical(*patterns: str) -> int:
    paths = {path for pattern in patterns for path in ROOT.glob(pattern) if "node_modules" not in path.parts}
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _words(paths: Iterable[Path]) -> list[int]:
    return [len(path.read_text(encoding="utf-8").split()) for path in paths]


def weigh() -> Weight:
    """Return the weight of the tree."""
    modules = sorted(_SOURCE.rglob("*.py"))
    source: Counter[str] = Counter()
    for path in modules:
        inside = path.relative_to(_SOURCE)
        source[inside.parts[0] if len(inside.parts) > 1 else "rest"] += _logical([path])
    decisions = _words(path for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "index.md")
    return {
        "logical_lines": {"headgate": source.total(), "lab": _logical((ROOT / "lab").rglob("*.py")), **source},
        "lines": {
            "tests": _physical("tests/**/*.py"),
            "tools": _physical(*(f"{folder}/**/*.{ending}" for folder in _TOOLS for ending in ("py", "sh", "mjs"))),
        },
        "words": {
            "docs": sum(_words([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])),
            "longest_decision": max(decisions, default=0),
        },
        "surface": {
            "decisions": len(decisions),
            "packages": sum(path.name == "__init__.py" for path in modules),
            "modules": len(modules),
            **_surface(),
        },
    }


def _surface() -> dict[str, int]:
    """Return what users meet; the generated reference lists it."""
    from headgate.cli.program import program
    from scripts.reference import PAGES

    commands = list(_commands(program))
    rows = {name: write() for name, write in PAGES.items()}
    return {
        "commands": len(commands),
        "options": sum(isinstance(part, click.Option) for command in commands for part in command.params),
        "configuration_keys": len(re.findall(r"^\| `", rows["configuration.md"], re.MULTILINE)),
        "metrics": len(re.findall(r"^\| `", rows["metrics.md"], re.MULTILINE)),
        "public_names": len(re.findall(r"^### ", rows["python.md"], re.MULTILINE)),
    }


def _commands(command: click.Command) -> Iterable[click.Command]:
    if not isinstance(command, click.Group):
        yield command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        nested = command.get_command(context, name)
        assert nested is not None
        yield from _commands(nested)


def above(weight: Weight, bounds: Weight) -> list[str]:
    """Return a line for each number above its bound, or without one; those that grew most are first."""
    rows = [
        (number - bounds.get(table, {}).get(name, 0), f"{table}.{name}: {number}, at most {bounds[table].get(name)}")
        for table, numbers in weight.items()
        for name, number in numbers.items()
        if number > bounds.get(table, {}).get(name, 0)
    ]
    return [line for _, line in sorted(rows, reverse=True)]


def lowered(weight: Weight, bounds: Weight) -> Weight:
    """Return the bounds, each lowered to its number; bounds of what is gone are dropped, those of what is new added."""
    return {
        table: {name: min(number, bounds.get(table, {}).get(name, number)) for name, number in numbers.items()}
        for table, numbers in weight.items()
    }


def _toml(weight: Weight) -> str:
    head = "# Bounds of the weight of this tree, which `make lint` compares with its count (scripts/weight.py).\n"
    head += "# A number only falls; where one has to rise, the commit says why.\n"
    tables = (
        f"\n[{table}]\n" + "".join(f"{name} = {number}\n" for name, number in numbers.items())
        for table, numbers in weight.items()
    )
    return head + "".join(tables)


def main(arguments: list[str]) -> int:
    """Compare, or lower; return 1 if a number is above its bound."""
    weight = weigh()
    bounds: Weight = tomllib.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if "--lower" in arguments:
        FILE.write_text(_toml(lowered(weight, bounds)), encoding="utf-8")
        return 0
    found = above(weight, bounds)
    for line in found[:_LARGEST]:
        print(f"weight.toml: {line}", file=sys.stderr)
    if not found:
        print(
            f"Weight: {weight['logical_lines']['headgate']} logical lines, {weight['lines']['tests']} lines of tests."
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
