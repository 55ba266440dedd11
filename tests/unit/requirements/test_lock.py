"""The lock files: everything pinned and hashed, nothing bound to one registry."""

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def pinned(lock: Path) -> dict[str, list[str]]:
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    return {entry.partition("==")[0]: re.findall(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries}


def asked(requirements: list[str | dict[str, str]]) -> set[str]:
    return {re.split(r"[^\w.-]", line)[0] for line in requirements if isinstance(line, str)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_requirement_is_exact_and_hashed(lock: Path) -> None:
    assert pinned(lock)
    assert all(name and hashes for name, hashes in pinned(lock).items())


@pytest.mark.parametrize("lock", [*LOCKS, ROOT / "requirements/node/package-lock.json"], ids=lambda lock: lock.name)
def test_locks_contain_no_address(lock: Path) -> None:
    assert "://" not in lock.read_text()


def test_the_lock_contains_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    groups += project["dependency-groups"].values()
    assert set().union(*map(asked, groups)) - {"headgate"} <= set().union(*map(pinned, LOCKS))


def test_the_node_lock_has_the_versions_of_its_package() -> None:
    folder = ROOT / "requirements/node"
    package = json.loads((folder / "package.json").read_text())
    lock = json.loads((folder / "package-lock.json").read_text())
    assert lock["packages"][""]["dependencies"] == package["dependencies"]
