import pytest

from headgate.cli.advice import advice

FLAGS = {
    "parse": ["--identity"],
    "fetch": ["--identity", "--ca", "--json"],
    "check": ["--content-type", "--ca", "--json"],
}


def test_the_group_names_every_command_and_where_to_start(run):
    told = run("--help")
    assert (told.code, told.err) == (0, "")
    assert list(advice.list_commands(None)) == list(FLAGS)
    for name in FLAGS:
        assert f"\n  {name} " in told.out.decode()
    assert "Start with: headgate advice fetch" in told.out.decode()


@pytest.mark.parametrize("command", FLAGS)
def test_a_command_says_its_flags_and_shows_examples(run, command):
    told = run(command, "--help")
    assert (told.code, told.err) == (0, "")
    text = told.out.decode()
    assert text.startswith(f"Usage: headgate advice {command} ")
    assert [flag for flag in FLAGS[command] if flag not in text.replace(",", " ").split()] == []
    assert text.count(f"headgate advice {command} ") >= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Usage: headgate advice"),
        (["nope"], "no such command"),
        (["parse", "--identity", "A\nB"], "contains a control character"),
        (["parse", "--identity", "Example,Bot"], "must be a brand name, other names if any"),
        (["parse", "--identity", ""], "contains an empty name"),
        (["parse", "--identity", "A,,*"], "contains an empty name"),
        (["parse", "--identity", "A,*", "/nowhere/at.all"], "/nowhere/at.all: No such file or directory"),
        (["parse", "--identity", "A,*", "/"], "/: Is a directory"),
        (["fetch", "--identity", "A,*"], "missing argument 'ORIGIN'"),
        (
            ["fetch", "https://localhost", "--identity", "A,*", "--ca", "/nowhere/at.all"],
            "--ca /nowhere/at.all: No such",
        ),
        (["check"], "missing argument"),
        (["check", "example.com"], "example.com: no such file; for an origin pass its URL, https://example.com"),
        (["check", "https://localhost", "--content-type", "a/b"], "--content-type is for a FILE"),
        (["check", "http://example.com"], "advice is fetched only from https origins"),
    ],
)
def test_wrong_use_is_exit_2(run, words, said):
    told = run(*words)
    assert (told.code, told.out) == (2, b"")
    assert said in told.err
