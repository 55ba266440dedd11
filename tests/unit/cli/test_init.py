import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.cli.init import _QUESTIONS
from headgate.config import read


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_file_has_what_the_flags_say_and_is_valid(headgate):
    rule, origin, listen = "5/min burst 3", "https://app.example/ä", "[::]:8090"
    assert headgate("init", "--origin", "https://app.example/ä", "--rule", rule, "--listen", listen, "a.toml").code == 2
    origin = "https://app.example/a"
    done = headgate("init", "--origin", origin, "--rule", rule, "--listen", listen, "a b.toml")
    assert (done.code, done.err) == (0, "")
    assert "headgate serve --config 'a b.toml'" in done.out.decode()
    assert "curl -i http://127.0.0.1:8090/" in done.out.decode()
    assert "Dashboard: http://127.0.0.1:8091/" in done.out.decode()
    tree = read("a b.toml")
    assert (tree.gate.origin, tree.gate.listen, tree.domain[0].rules) == (origin, listen, (rule,))
    assert tree.gate.admin == "127.0.0.1:8091", "another port than that of clients"


def test_without_a_terminal_the_defaults_are_written_in_at_most_25_lines_and_never_over_a_file(headgate, monkeypatch):
    assert headgate("init").code == 0
    assert len(Path("headgate.toml").read_text().splitlines()) <= 25
    assert headgate("config", "check").out.startswith(b"headgate.toml: valid")
    Path("headgate.toml").write_text("# mine")
    done = headgate("init")
    assert (done.code, done.out) == (2, b"")
    assert "headgate.toml exists already; add --force" in done.err
    assert Path("headgate.toml").read_text() == "# mine"
    assert headgate("init", "--force").code == 0
    assert read("headgate.toml").gate.origin == _QUESTIONS["origin"][1]
    assert "cannot be written: No such file" in headgate("init", "missing/a.toml").err


def test_a_terminal_is_asked_three_questions_and_again_after_an_invalid_answer():
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "headgate", "init"]
    with subprocess.Popen(
        command, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.write(leader, b"127.0.0.1:9\nhttp://127.0.0.1:9\n\n127.0.0.1:0\n")
        _, asked = process.communicate(timeout=60)
    assert process.returncode == 0
    for question, default, _ in _QUESTIONS.values():
        assert f"{question} [{default}]: " in asked
    assert "the scheme is missing" in asked
    tree = read("headgate.toml")
    assert (tree.gate.origin, tree.domain[0].rules, tree.gate.listen) == (
        "http://127.0.0.1:9", ("10/s burst 20",), "127.0.0.1:0",
    )  # fmt: skip
