import pytest

from headgate.cli.bundle import bundle


def test_group_help_lists_every_command(run):
    result = run("--help")
    assert (result.code, result.err) == (0, "")
    for name in bundle.list_commands(None):
        assert f"\n  {name} " in result.out.decode()
    assert "headgate bundle create --dir" in result.out.decode()


def test_command_help_has_an_example(run):
    for command in bundle.list_commands(None):
        result = run(command, "--help")
        assert (result.code, result.err) == (0, "")
        assert result.out.decode().startswith(f"Usage: headgate bundle {command} ")
        assert result.out.decode().count(f"headgate bundle {command} ") >= 2


@pytest.mark.parametrize("words", [["nope"], []])
def test_unknown_command_is_wrong_use(run, words):
    result = run(*words)
    assert (result.code, result.out) == (2, b"")
    assert "headgate bundle" in result.err
