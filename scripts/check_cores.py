"""Refuse what would make a core impure, and modules without a list of their public names.

A core is given the time and the chance, and returns what should happen: so it may not read a clock, draw a number,
open a socket or a file, start a thread or a loop, log, or read the environment; and beyond the standard library it may
import msgspec and can_ada only, the rooms that sign also cryptography. Passing `random.random` on without calling it is
fine: that is how chance is injected.

Every module lists its public names in `__all__`.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finding", "check_module", "check_tree", "main"]

CORES = frozenset({"advice", "throttle", "limit", "bundle", "token", "release", "http", "errors"})
ALLOWED_THIRD_PARTY = frozenset({"msgspec", "can_ada"})
ALLOWED_IN_ROOM = {
    "bundle/files": frozenset({"mmap", "os", "pathlib", "tempfile"}),
    "bundle/files/byte_source.py": frozenset({"threading"}),  # a lock around the position of a file that threads share
    "bundle/lint/file.py": frozenset({"mmap", "os"}),
    "bundle/signing": frozenset({"cryptography"}),
    "bundle/sources": frozenset({"backports", "brotli", "compression", "os", "pathlib", "warcio"}),
    "token": frozenset({"cryptography"}),
}
"""What one room or one module of a core may import beyond that."""
REFUSED_MODULES = frozenset({
    "asyncio", "logging", "mmap", "os", "pathlib", "sched", "secrets", "selectors", "socket", "tempfile", "threading",
    "time",
})  # fmt: skip
REFUSED_USES = ("os.environ", "os.getenv", "os.urandom")
REFUSED_CALLS = (
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "random.",
)


@dataclass(frozen=True)
class Finding:
    """One thing refused: the file, the line in it, and a sentence."""

    path: Path
    line: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.sentence}"


def main(package: Path = Path("src/headgate")) -> int:
    """Print every finding in the package; 1 when there are any, else 0."""
    findings = list(check_tree(package))
    for finding in findings:
        print(finding)
    if not findings:
        print("check_cores: the cores are pure, and every module names what it offers.")
    return 1 if findings else 0


def check_tree(package: Path) -> Iterator[Finding]:
    """Check every module of the package at this path."""
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package)
        is_core = room.parts[0].removesuffix(".py") in CORES
        also = (ALLOWED_IN_ROOM.get(place.as_posix(), frozenset()) for place in (room, room.parent))
        yield from check_module(path, is_core=is_core, also=frozenset().union(*also))


def check_module(path: Path, *, is_core: bool, also: frozenset[str] = frozenset()) -> Iterator[Finding]:
    """Check one module; the rules of purity apply to a core only, which may import what is in `also`."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    if offered(tree) is None:
        yield Finding(path, 1, "the module has no __all__; list its public names, or none")
    if is_core:
        aliases = dict(imported(tree))
        for node in ast.walk(tree):
            for sentence in impurities(node, aliases, also):
                yield Finding(path, node.lineno, sentence)


def offered(tree: ast.Module) -> list[str] | None:
    """Return the names in the module's `__all__`; None without one."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple() as value):
                return [ast.unparse(element) for element in value.elts]
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.List() | ast.Tuple() as value):
                return [ast.unparse(element) for element in value.elts]
    return None


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each name that an import binds, and the dotted name it stands for."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    top = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (top, top)
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    yield alias.asname or alias.name, f"{module}.{alias.name}"


def impurities(node: ast.AST, aliases: dict[str, str], also: frozenset[str]) -> Iterator[str]:
    """Yield a sentence for each rule that this one node breaks."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield from refused_import(alias.name, also)
        case ast.ImportFrom(module=str(module), level=0, names=names):
            yield from refused_import(module, also)
            for alias in names:
                yield from refused_use(f"{module}.{alias.name}")
        case ast.Call(func=function):
            called = dotted(function, aliases)
            if called.startswith(REFUSED_CALLS):
                yield f"a core calls {called}(); let the caller give the time, or the chance"
        case ast.Attribute():
            yield from refused_use(dotted(node, aliases))


def refused_import(module: str, also: frozenset[str]) -> Iterator[str]:
    """Yield a sentence when a core may not import the module."""
    top = module.partition(".")[0]
    if top in REFUSED_MODULES - also:
        yield f"a core imports {module}; time, chance and input are given to it, and what it wants done it returns"
    elif top not in sys.stdlib_module_names | ALLOWED_THIRD_PARTY | also | {"headgate"}:
        yield f"a core imports {module}; beyond the standard library it may import msgspec and can_ada only"


def refused_use(name: str) -> Iterator[str]:
    """Yield a sentence when a core may not so much as name this."""
    if name in REFUSED_USES:
        yield f"a core uses {name}; let the caller pass what it should know"


def dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    """Return the full dotted name that an expression stands for, or "" when it is no name."""
    match node:
        case ast.Name(id=name):
            return aliases.get(name, "")
        case ast.Attribute(value=value, attr=attribute):
            parent = dotted(value, aliases)
            return f"{parent}.{attribute}" if parent else ""
    return ""


if __name__ == "__main__":
    sys.exit(main())
