"""`headgate config`: a file is named as the first argument, or with --config."""

import pytest

FILE = '[gate]\norigin = "http://127.0.0.1:8000"\n[[domain]]\nname = "a"\nrules = ["1/s"]\n'


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Give the name of a file, and stand in an empty folder."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("option", [[], ["--config"]])
@pytest.mark.parametrize(("command", "words"), [("check", "valid, 1 domain\n"), ("show", "http://127.0.0.1:8000")])
def test_the_named_file_is_read(headgate, file, option, command, words):
    ran = headgate("config", command, *option, file)
    assert ran.code == 0
    assert words in ran.out.decode()


def test_check_without_a_file_says_how_to_name_one(headgate, file):
    ran = headgate("config", "check")
    assert (ran.code, ran.out) == (2, b"")
    assert ran.err == "headgate: headgate.toml does not exist here; name a file: headgate config check FILE\n"
