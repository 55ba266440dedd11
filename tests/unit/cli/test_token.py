import io
import os
import stat
import time
from functools import partial

import pytest

from headgate.cli import token as cli_token
from headgate.errors import ConfigurationError
from headgate.token import Checker, mint, read_keys

WRONG_USE = [
    ([], "Usage: headgate token"),
    (["nope"], "no such command"),
    (["mnt"], "did you mean 'mint'?"),
    (["mint"], "missing option '--key'"),
    (["create"], "did you mean 'mint'?"),
    (["mint", "--key", "/nowhere/at.all"], "create a key with: headgate keys new-token -o /nowhere/at.all"),
    (["mint", "--key", "-"], "-: invalid key file"),
    (["mint", "--key", "-", "--count", "0"], "must be a whole number from 1 to 1,000,000, got '0'"),
    (["mint", "--key", "-", "--ttl", "soon"], "got 'soon'"),
    (["check", "--key", "-"], "missing argument 'TOKEN"),
    (["check", "x", "--key", "/"], "/: Is a directory"),
]

INVALID_VALUES = [
    (["mint", "--ttl", "86401"], "ttl must be above 0 and at most 86400 seconds with this key, got 86401"),
    (["mint", "--ttl", "0"], "at most 86400 seconds with this key, got 0"),
    (["mint", "--origin", "http://a.example"], "invalid origin 'http://a.example'; expected an https origin"),
    (["mint", "--origin", "http://a.example", "--json"], "invalid origin 'http://a.example'; expected an https origin"),
    (["mint", "--origin", ""], "'--origin': empty"),
    (["check", "x", "--origin", "b.example"], "invalid origin 'b.example'; expected an https origin"),
]


@pytest.fixture
def run(headgate):
    """Run `headgate token`."""
    return partial(headgate, "token")


@pytest.fixture
def create(headgate):
    """Run `headgate keys new-token`."""
    return partial(headgate, "keys", "new-token")


@pytest.fixture
def key(create, tmp_path):
    """Return a key file."""
    file = tmp_path / "key.json"
    assert create("-o", file).code == 0
    return file


def check_with(key, token, origin=""):
    return Checker(read_keys(key.read_bytes())).check(token, now=time.time(), origin=origin)


def test_wrong_use_exits_with_2(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, expected in WRONG_USE:
        result = run(*arguments)
        assert (result.code, result.out) == (2, b"")
        assert expected in result.err, arguments
        assert list(tmp_path.iterdir()) == []
        if arguments:
            assert result.err.count("\n") == 1


def test_invalid_value_exits_with_2(run, key):
    for (command, *arguments), expected in INVALID_VALUES:
        result = run(command, "--key", key, *arguments)
        assert (result.code, result.out) == (2, b"")
        assert expected in result.err
        assert result.err.count("\n") == 1


def test_new_key_is_readable_by_its_owner_only_with_any_umask(create, tmp_path):
    for umask in (0o000, 0o022, 0o077):
        file = tmp_path / f"{umask:o}.json"
        before = os.umask(umask)
        try:
            result = create("-o", file)
        finally:
            os.umask(before)
        assert (result.code, result.out) == (0, b"")
        assert result.err.startswith(f"{file}: keep it secret; it mints and checks tokens")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        (made,) = read_keys(file.read_bytes())
        assert made.max_ttl == 86_400


def test_an_invalid_key_is_not_written(create, tmp_path):
    for arguments, expected in (
        (["-o", tmp_path / "k", "--max-ttl", "0"], "max_ttl must be from 1 to 604800 seconds, got 0"),
        (["-o", "/nowhere/at.all"], "/nowhere/at.all cannot be written: No such file or directory"),
        (["-o", "/"], "/ "),
    ):
        result = create(*arguments)
        assert (result.code, result.out) == (2, b"")
        assert expected in result.err
    assert list(tmp_path.iterdir()) == []


def test_endless_key_file_is_read_up_to_its_maximum_size(monkeypatch):
    class Endless(io.BytesIO):
        def read(self, size=-1):
            assert 0 <= size < 1_000_000
            return bytes(size)

    monkeypatch.setattr(cli_token.click, "open_file", lambda *_: Endless())
    with pytest.raises(ConfigurationError, match=r"^/dev/zero: the key file is too large; expected at most 65536"):
        cli_token._read_keys("/dev/zero")


def test_invalid_key_file_is_named_and_not_quoted(run, tmp_path):
    file = tmp_path / "key.json"
    file.write_text('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}')
    result = run("mint", "--key", file)
    assert result.code == 2
    assert result.err.startswith(f"headgate: {file}: the secret must have at least 32 bytes, got 6")
    assert "c2VjcmV0" not in result.err


def test_mint_prints_one_token_a_line(run, key):
    result = run("mint", "--key", key, "--count", "5", "--ttl", "60")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(b"\n")
    assert len(set(result.lines)) == 5
    for token in result.lines:
        valid = check_with(key, token)
        assert not valid.is_bound
        assert time.time() + 50 < valid.expires < time.time() + 60.01


def test_default_ttl_is_ten_minutes_or_the_key_s_maximum(run, create, key, tmp_path):
    (token,) = run("mint", "--key", key).lines
    assert time.time() + 590 < check_with(key, token).expires < time.time() + 600.01
    short = tmp_path / "short.json"
    create("-o", short, "--max-ttl", "5")
    assert read_keys(short.read_bytes())[0].max_ttl == 5
    assert run("mint", "--key", short).code == 0
    assert run("mint", "--key", short, "--ttl", "6").code == 2


@pytest.fixture
def new_token(key):
    (made,) = read_keys(key.read_bytes())
    return lambda **changes: mint(made, **({"now": time.time(), "ttl": 60, "entropy": bytes} | changes))


def test_check_of_a_valid_token_does_not_use_it_up(run, key, new_token):
    for _ in range(2):
        result = run("check", "--key", key, new_token())
        assert (result.code, result.err) == (0, "")
        assert result.out.decode() in {"valid for 60 s, any origin\n", "valid for 59 s, any origin\n"}
    result = run("check", "--key", key, "--json", new_token())
    assert (result.code, result.json["result"]) == (0, "valid")
    assert time.time() + 50 < result.json["expires"] < time.time() + 61


def test_check_of_a_bound_token_requires_its_origin(run, key, new_token):
    bound = new_token(origin="https://a.example")
    result = run("check", "--key", key, "--origin", "https://A.example/page", bound)
    assert (result.code, result.out.endswith(b" s, one origin only\n")) == (0, True)
    result = run("check", "--key", key, "--origin", "https://b.example", bound)
    assert (result.code, result.out.startswith(b"token_invalid: malformed, of another key, ")) == (1, True)
    result = run("check", "--key", key, bound)
    assert (result.code, result.out) == (1, b"token_invalid: the token is for one origin; name it with --origin\n")


def test_check_of_a_refused_token_exits_with_1_and_the_proxy_s_reason(run, key, new_token):
    expired = new_token(now=time.time() - 61)
    for wrong, reason in ((expired, "token_expired"), ("x", "token_invalid"), ("", "token_invalid")):
        result = run("check", "--key", key, wrong)
        assert (result.code, result.err) == (1, "")
        assert result.out.decode().startswith(f"{reason}: ")
        result = run("check", "--key", key, "--json", wrong)
        assert (result.code, result.json) == (1, {"result": reason, "expires": None})
