import pytest

from headgate.cli.token import token

FLAGS = {
    "new-key": ["-o", "--algorithm", "--public", "--max-ttl"],
    "mint": ["--key", "--count", "--ttl", "--origin", "--json"],
    "rules": ["--key", "--proxy", "--ttl", "--bind", "--no-fallback"],
    "check": ["--key", "--origin", "--json"],
}


def test_the_group_names_every_command_and_where_to_start(run):
    told = run("--help")
    assert (told.code, told.err) == (0, "")
    assert list(token.list_commands(None)) == list(FLAGS)
    for name in FLAGS:
        assert f"\n  {name} " in told.out.decode()
    assert "Start with: headgate token new-key -o key.json" in told.out.decode()
    assert "headgate proxy --token-key key.json" in told.out.decode()


@pytest.mark.parametrize("command", FLAGS)
def test_a_command_says_its_flags_and_shows_examples(run, command):
    told = run(command, "--help")
    assert (told.code, told.err) == (0, "")
    text = told.out.decode()
    assert text.startswith(f"Usage: headgate token {command} ")
    assert [flag for flag in FLAGS[command] if flag not in text.replace(",", " ").split()] == []
    assert text.count(f"headgate token {command} ") >= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Usage: headgate token"),
        (["nope"], "no such command"),
        (["new-key", "-o", "k", "--algorithm", "rsa"], "'rsa' is not one of 'hmac-sha256', 'ed25519'"),
        (["new-key", "-o", "k", "--max-ttl", "0"], "max_ttl is 0"),
        (["new-key", "-o", "/nowhere/at.all"], "/nowhere/at.all cannot be written: No such file or directory"),
        (["new-key", "-o", "/"], "/ "),
        (["mint"], "key.json: No such file or directory; make a key with: headgate token new-key -o key.json"),
        (["mint", "--key", "/nowhere/at.all"], "make a key with: headgate token new-key -o /nowhere/at.all"),
        (["mint", "--key", "-"], "-: invalid key file"),
        (["mint", "--key", "-", "--count", "0"], "0 is not in the range"),
        (["mint", "--key", "-", "--ttl", "soon"], "got 'soon'"),
        (["rules", "--key", "-", "--proxy", "https://p.example"], "missing argument 'URL"),
        (["rules", "--key", "-", "https://a.example"], "missing option '--proxy'"),
        (["check", "--key", "-"], "missing argument 'TOKEN"),
        (["check", "x", "--key", "/"], "/: Is a directory"),
    ],
)
def test_wrong_use_is_exit_2(run, words, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = run(*words)
    assert (told.code, told.out) == (2, b"")
    assert said in told.err
    assert list(tmp_path.iterdir()) == []
    if words:
        assert told.err.count("\n") == 1
