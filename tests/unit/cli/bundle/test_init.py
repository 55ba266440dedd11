import pytest

from headgate.cli.bundle import bundle

FLAGS = {
    "info": ["--json", "--from-end", "--profile"],
    "list": ["--json", "--digest", "--profile"],
    "get": ["-H", "--variant-key", "-o", "--headers", "--profile"],
    "extract": ["-o", "--profile"],
    "create": [
        "--dir", "--base-url", "--har", "--urls", "--version", "--primary-url", "--manifest-url", "-H", "-o",
    ],
    "convert": ["--version", "-o", "--profile"],
    "check": ["--json", "--profile"],
    "sign": [
        "--certificate", "--key", "--validity-url", "--date", "--expires", "--integrity-block", "--remove", "-o",
        "--profile",
    ],
    "verify": ["--json", "--profile"],
    "serve": ["--listen", "--unpack", "--profile"],
}  # fmt: skip


def test_group_help_lists_every_command(run):
    result = run("--help")
    assert (result.code, result.err) == (0, "")
    assert list(bundle.list_commands(None)) == list(dict.fromkeys(name.split()[0] for name in FLAGS))
    for name in bundle.list_commands(None):
        assert f"\n  {name} " in result.out.decode()
    assert "headgate bundle create --dir" in result.out.decode()


@pytest.mark.parametrize("command", FLAGS)
def test_command_help_has_flags_and_an_example(run, command):
    result = run(*command.split(), "--help")
    assert (result.code, result.err) == (0, "")
    text = result.out.decode()
    assert text.startswith(f"Usage: headgate bundle {command} ")
    words = text.replace(",", " ").split()
    assert [flag for flag in FLAGS[command] if flag not in words] == []
    assert text.count(f"headgate bundle {command} ") >= 2


@pytest.mark.parametrize("words", [["nope"], []])
def test_unknown_command_is_wrong_use(run, words):
    result = run(*words)
    assert (result.code, result.out) == (2, b"")
    assert "headgate bundle" in result.err
