from pathlib import Path

import pytest

from scripts.check_cores import check_module, check_tree, main

REFUSED = [
    ("import time", "imports time"),
    ("from time import monotonic", "imports time"),
    ("import socket", "imports socket"),
    ("import os.path", "imports os.path"),
    ("from pathlib import Path", "imports pathlib"),
    ("import mmap, tempfile", "imports tempfile"),
    ("import asyncio", "imports asyncio"),
    ("from asyncio.subprocess import PIPE", "imports asyncio.subprocess"),
    ("import threading", "imports threading"),
    ("import logging.handlers", "imports logging.handlers"),
    ("def f():\n    import time", "imports time"),
    ("import os\nhome = os.environ['HOME']", "uses os.environ"),
    ("import os as system\nhome = system.environ", "uses os.environ"),
    ("from os import environ", "uses os.environ"),
    ("import os\nhome = os.getenv('HOME')", "uses os.getenv"),
    ("import random\ndraw = random.random()", "calls random.random()"),
    ("import random as chance\ndraw = chance.uniform(0, 1)", "calls random.uniform()"),
    ("from random import random\ndraw = random()", "calls random.random()"),
    ("from datetime import datetime\nnow = datetime.now()", "calls datetime.datetime.now()"),
    ("import datetime as dt\nnow = dt.date.today()", "calls datetime.date.today()"),
    ("import zmq", "imports zmq"),
    ("import httptools", "imports httptools"),
    ("from click.core import Command", "imports click.core"),
]

ACCEPTED = [
    "import math, array, bisect",
    "import msgspec, can_ada",
    "from headgate.release import judge",
    "import random\ndef throttle(draw=random.random): return draw",
    "from random import random\ndef throttle(draw=random): return draw()",
    "import datetime\nzero = datetime.datetime.fromtimestamp(0, datetime.UTC)",
    "def held(now, time): return time.monotonic",
]


def check(folder: Path, source: str, *, name: str = "rule.py", is_core: bool = True) -> list[str]:
    path = folder / name
    path.write_text(source)
    return [finding.sentence for finding in check_module(path, is_core=is_core)]


@pytest.mark.parametrize(("source", "words"), REFUSED)
def test_a_core_is_refused_each_impurity_by_name(source: str, words: str, tmp_path: Path) -> None:
    assert any(words in sentence for sentence in check(tmp_path, f"__all__ = []\n{source}\n"))


@pytest.mark.parametrize(("source", "words"), REFUSED)
def test_a_shell_may_do_all_that(source: str, words: str, tmp_path: Path) -> None:
    assert check(tmp_path, f"__all__ = []\n{source}\n", is_core=False) == []


@pytest.mark.parametrize("source", ACCEPTED)
def test_a_core_may_use_what_is_pure(source: str, tmp_path: Path) -> None:
    assert check(tmp_path, f"__all__ = []\n{source}\n") == []


def test_a_module_may_use_what_is_allowed_to_it_alone(tmp_path: Path) -> None:
    (tmp_path / "bundle/files").mkdir(parents=True)
    for name in ("byte_source.py", "spool.py"):
        (tmp_path / "bundle/files" / name).write_text("__all__ = []\nimport threading\n")
    assert [finding.path.name for finding in check_tree(tmp_path)] == ["spool.py"]


def test_files_are_opened_in_the_parts_for_files_alone(tmp_path: Path) -> None:
    for part in ("bundle/files", "bundle/format", "limit"):
        (tmp_path / part).mkdir(parents=True)
        (tmp_path / part / "spool.py").write_text("__all__ = []\nimport tempfile\n")
    refused = {str(finding.path.relative_to(tmp_path)) for finding in check_tree(tmp_path)}
    assert refused == {"bundle/format/spool.py", "limit/spool.py"}


def test_every_module_names_what_it_offers(tmp_path: Path) -> None:
    (sentence,) = check(tmp_path, "rate = 1\n", is_core=False)
    assert "no __all__" in sentence


@pytest.mark.parametrize("declaration", ["__all__ = ['a']", "__all__ = ('a',)", "__all__: list[str] = []"])
def test_names_may_be_declared_in_any_usual_way(declaration: str, tmp_path: Path) -> None:
    assert check(tmp_path, declaration) == []


def test_the_rooms_that_are_cores_are_known_by_name(tmp_path: Path) -> None:
    for path in ["limit/rule.py", "http/url.py", "release.py", "errors.py", "link/bus.py", "cli/__init__.py"]:
        module = tmp_path / path
        module.parent.mkdir(exist_ok=True)
        module.write_text("import time\n__all__ = []\n")
    refused = {str(finding.path.relative_to(tmp_path)) for finding in check_tree(tmp_path)}
    assert refused == {"limit/rule.py", "http/url.py", "release.py", "errors.py"}


def test_cryptography_is_for_the_room_that_signs(tmp_path: Path) -> None:
    for path in ["bundle/signing/keys.py", "bundle/integrity.py", "limit/signing/keys.py", "bundle/sources/signing.py"]:
        module = tmp_path / path
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("from cryptography import x509\n__all__ = []\n")
    (tmp_path / "bundle/signing/clock.py").write_text("import time, click\n__all__ = []\n")
    refused = [str(finding.path.relative_to(tmp_path)) for finding in check_tree(tmp_path)]
    clock = "bundle/signing/clock.py"
    assert refused == ["bundle/integrity.py", clock, clock, "bundle/sources/signing.py", "limit/signing/keys.py"]


def test_what_reads_and_compresses_is_for_the_room_of_sources(tmp_path: Path) -> None:
    for path in ["bundle/sources/warc.py", "bundle/warc.py"]:
        module = tmp_path / path
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("import brotli, warcio\nfrom backports import zstd\n__all__ = []\n")
    assert {str(finding.path.relative_to(tmp_path)) for finding in check_tree(tmp_path)} == {"bundle/warc.py"}


def test_the_exit_status_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path) == 0
    (tmp_path / "release.py").write_text("__all__ = []\nimport time\n")
    assert main(tmp_path) == 1
    assert f"{tmp_path}/release.py:2: a core imports time" in capsys.readouterr().out
