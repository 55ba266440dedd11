import pathlib
import shlex
import subprocess
import sys

import msgspec
import pytest

from headgate import __version__
from headgate.cli import main, program
from headgate.errors import MissingExtra

PROGRAM = [sys.executable, "-m", "headgate"]


def exits(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    said = capsys.readouterr()
    return caught.value.code, said.out, said.err


def test_version_and_help(capsys):
    code, out, _ = exits(capsys, "--version")
    assert (code, out.splitlines()[0]) == (0, f"headgate {__version__}")
    assert f"msgspec {msgspec.__version__}, " in out.splitlines()[1]
    code, out, _ = exits(capsys, "--help")
    assert code == 0
    for command in ("serve", "master", "bundle", "advice", "replay", "config"):
        assert f"  {command} " in out


def test_a_shell_can_complete(capsys, monkeypatch):
    for name, value in (
        ("COMP_WORDS", "headgate serve --max-in"),
        ("COMP_CWORD", "2"),
        ("_HEADGATE_COMPLETE", "bash_complete"),
    ):
        monkeypatch.setenv(name, value)
    assert exits(capsys)[:2] == (0, "plain,--max-in-flight\n")


WRONG_USE = [
    (["nope"], "no such command 'nope'"),
    (["serve", "--origin", "a:1"], "invalid origin 'a:1': the scheme is missing; expected 'http://a:1'"),
    (["serve", "--admin", ""], "no origin: add --origin"),
    (["lint"], "no such command 'lint'; did you mean 'config check'?"),
    (["help"], "did you mean '--help'?"),
    (["version"], "did you mean '--version'?"),
    (["run"], "did you mean 'serve'?"),
    (["config", "lint"], "did you mean 'check'?"),
    (["bundle", "lint"], "did you mean 'check'?"),
    (["server"], "no such command 'server'; did you mean 'serve'? See 'headgate --help'"),
    (["serve", "--rule", "10/s", "burst", "20"], "a rule is one argument; quote it"),
    (["serve", "--port", "80"], "headgate serve: no such option --port; see 'headgate serve --help'"),
    (["serve", "--worker", "2"], "no such option --worker; did you mean --workers? See"),
    (["serve", "--workers"], "headgate serve: option '--workers' requires an argument; see 'headgate serve --help'"),
    (["advice", "fetch", "--identity"], "headgate advice fetch: option '--identity' requires an argument"),
    (["serve", "--workers", "x"], "expected a whole number from 1 to 256, got 'x'"),
    (["serve", "--workers", "257"], "expected a whole number from 1 to 256, got '257'"),
    (["get", "http://a/", "--retry", "-1"], "must be a whole number of at least 0, got '-1'"),
    (["get", "http://a/", "--max-delay", "soon"], "must be a number of seconds of at least 0, got 'soon'"),
    (["replay", "--throttle", "--jitter", "2", "-"], "must be a number from 0 to 1, got '2'"),
    (["token", "mint", "--count", "0"], "must be a whole number from 1 to 1,000,000, got '0'"),
    (["serve", "headgate.toml"], "name a configuration file with --config"),
    (["config", "check", "a.toml", "--config", "b.toml"], "'a.toml' and 'b.toml'"),
    (["replay"], "missing argument"),
    (["replay", "--rule", "1/s", "--nope", "-"], "no such option"),
    (["replay", "--rule", "1/s", "--max-delay", "-1", "-"], "must be a number of seconds of at least 0, got '-1'"),
    (["replay", "--rule", "1/s", "--max-delay", "nan", "-"], "got 'nan'"),
    (["replay", "--rule", "10 per fortnite", "-"], "invalid rule '10 per fortnite'; expected"),
    (["replay", "--rule", "1/s", "/nowhere/at.all"], "/nowhere/at.all: No such file"),
    (["config", "check", "--config", "/nowhere/at.all"], "/nowhere/at.all: No such file"),
    (["config", "check", "--config", ""], "'--config': empty"),
    (["proxy", "--cert", ""], "'--cert': empty"),
    (["proxy", "--cert="], "'--cert': empty"),
    (["proxy", "--token-key", "a", "--token-key", ""], "'--token-key': empty"),
    (["bundle", "verify", "--trust", "", "a.wbn"], "'--trust': empty"),
    (["bundle", "sign", "--remove", "--key", "", "a.wbn", "-o", "o"], "'--key': empty"),
    (["bundle", "create", "--dir", "", "--base-url", "https://example.com/", "-o", "a.wbn"], "'--dir': empty"),
    (["bundle", "extract", "a.wbn", "-o", ""], "'--output': empty"),
    (["get", "https://example.com/", "-o", ""], "'--output': empty"),
    (["serve", "--rule", "1/s"], "origin"),
    (["serve", "--origin", "http://127.0.0.1:1"], "--rule"),
    (["master", "--domain", "nothing"], "NAME=RULE"),
]


def test_wrong_use_is_one_sentence_and_exit_2(capsys):
    wrong = []
    for arguments, words in WRONG_USE:
        code, out, err = exits(capsys, *arguments)
        is_one_sentence = err.startswith("headgate") and err.count("\n") == 1
        if (code, out) != (2, "") or words not in err or not is_one_sentence:
            wrong.append((arguments, code, out, err))
    assert wrong == []


@pytest.mark.parametrize(("words", "extra"), [(["proxy", "--plaintext"], "proxy"), (["serve"], "gate")])
def test_a_missing_library_of_the_servers_names_the_extra_to_install(words, extra):
    with pytest.raises(MissingExtra, match=rf"'\.\[{extra}\]'$"), program._missing_extra(words):
        raise ModuleNotFoundError(name="zmq")


def test_help_imports_no_command():
    code = (
        "import sys, headgate.cli.program as p; p._run(['--help']); print(sorted(m for m in sys.modules if m in "
        "('asyncio', 'zmq', 'rich', 'msgspec', 'httptools', 'prometheus_client', 'headgate.cli.serve')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


INTERRUPTED_IMPORT = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize(
    "start", ["from headgate.cli import main; main()", "runpy.run_module('headgate', run_name='__main__')"]
)
def test_an_interrupt_during_the_imports_is_exit_130_without_an_error(start):
    code = [sys.executable, "-c", INTERRUPTED_IMPORT + start, "--version"]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_entry_point_imports_next_to_nothing_before_it_handles_an_interrupt():
    code = "import sys; before = set(sys.modules); import headgate.cli; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["headgate", "headgate.cli", "headgate.version"]


def test_a_closed_pipe_is_exit_141_without_an_error():
    with subprocess.Popen([*PROGRAM, "config", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


def test_a_full_disk_is_one_sentence():
    with pathlib.Path("/dev/full").open("wb") as full:
        done = subprocess.run([*PROGRAM, "config", "show"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"No space left" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("config schema >&-", 0),
        ("replay --rule 1/s - <&-", 0),
        ("replay --rule 1/s nowhere.log 2>&-", 2),
        ("config schema <&- >&- 2>&-", 0),
    ],
)
def test_standard_streams_may_be_closed(arguments, code):
    command = f"exec {shlex.join(PROGRAM)} {arguments}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (code, b"")
