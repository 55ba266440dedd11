"""The set-up script's choices. That it installs is proven by every test that runs at all."""

import sys

import pytest

from scripts import venv


@pytest.fixture(autouse=True)
def _no_real_command(monkeypatch):
    monkeypatch.setattr(venv, "run", lambda *command: None)


def test_the_python_running_the_script_is_the_first_choice() -> None:
    assert venv.supported_python() == sys.executable


def test_an_old_python_gives_way_to_the_newest_supported_on_the_path(monkeypatch) -> None:
    monkeypatch.setattr(venv.sys, "executable", "/old/python3")
    monkeypatch.setattr(venv.shutil, "which", lambda name: f"/new/{name}")
    monkeypatch.setattr(venv, "succeeds", lambda python, *words: python in {"/new/python3.13", "/new/python3.12"})
    assert venv.supported_python() == "/new/python3.13"


@pytest.mark.parametrize(
    ("python", "sentence"),
    [(None, r"Python 3\.11 or newer is needed"), ("/usr/bin/python3", "install the package python3-venv, or uv")],
)
def test_what_is_missing_is_named_in_one_sentence(python, sentence, monkeypatch) -> None:
    monkeypatch.setattr(venv, "supported_python", lambda: python)
    monkeypatch.setattr(venv, "succeeds", lambda *words: False)
    with pytest.raises(SystemExit, match=sentence):
        venv.create(None)


def test_uv_is_not_looked_for_when_it_is_not_wanted(monkeypatch) -> None:
    monkeypatch.setattr(venv, "succeeds", lambda *words: True)
    monkeypatch.setattr(venv.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.delenv("HEADGATE_NO_UV", raising=False)
    assert venv.working_uv() == "/bin/uv"
    assert venv.bootstrapped_uv() == venv.VENV / "bin" / "uv"
    monkeypatch.setenv("HEADGATE_NO_UV", "1")
    assert venv.working_uv() is None
    assert venv.bootstrapped_uv() is None


def test_pip_does_the_work_when_uv_cannot_be_installed(monkeypatch) -> None:
    monkeypatch.delenv("HEADGATE_NO_UV", raising=False)
    monkeypatch.setattr(venv, "succeeds", lambda *words: False)
    assert venv.bootstrapped_uv() is None


@pytest.mark.parametrize("uv", [None, "/bin/uv"])
def test_everything_is_checked_against_its_hash_and_headgate_fetches_nothing(uv, monkeypatch) -> None:
    commands = []
    monkeypatch.setattr(venv, "run", lambda *command: commands.append([str(word) for word in command]))
    venv.install(uv)
    packages, itself = commands
    assert packages[-3:] == ["--require-hashes", "--requirement", str(venv.LOCK)]
    assert itself[-4:] == ["--no-deps", "--no-build-isolation", "--editable", str(venv.ROOT)]
    assert ("--offline" if uv else "--no-index") in itself
