import json
import time

import pytest

from headgate.token import Checker, Valid, read_keys


@pytest.fixture
def check(key):
    checker = Checker(read_keys(key.read_bytes()))
    return lambda token, origin="": checker.check(token, now=time.time(), origin=origin)


def test_one_token_a_line_each_good(run, key, check):
    told = run("mint", "--key", key, "--count", "5", "--ttl", "60")
    assert (told.code, told.err) == (0, "")
    assert told.out.endswith(b"\n")
    assert len(set(told.lines)) == 5
    for token in told.lines:
        valid = check(token)
        assert not valid.is_bound
        assert time.time() + 50 < valid.expires < time.time() + 60.01


def test_by_default_one_for_ten_minutes_or_what_the_key_allows(run, key, check, tmp_path):
    (token,) = run("mint", "--key", key).lines
    assert check(token).expires > time.time() + 590
    short = tmp_path / "short.json"
    run("new-key", "-o", short, "--max-ttl", "5")
    assert run("mint", "--key", short).code == 0
    assert run("mint", "--key", short, "--ttl", "6").code == 2


def test_for_one_origin(run, key, check):
    (token,) = run("mint", "--key", key, "--origin", "https://A.example/page").lines
    assert check(token, "https://a.example").is_bound
    assert check(token, "https://b.example") == "token_invalid"


def test_json(run, key, check):
    told = run("mint", "--key", key, "--count", "2", "--ttl", "60", "--origin", "https://A.example/page", "--json")
    assert list(told.json) == ["tokens", "expires", "origin"]
    assert told.json["origin"] == "https://a.example"
    assert len(told.json["tokens"]) == 2
    for token in told.json["tokens"]:
        assert check(token, "https://a.example").expires - told.json["expires"] < 0.01
    assert run("mint", "--key", key, "--json").json["origin"] is None


def test_the_first_key_that_can_mints(run, key, halves, tmp_path):
    site, proxy = halves
    ring = tmp_path / "ring.json"
    keys = [json.loads(file.read_text())["keys"][0] for file in (proxy, key, site)]
    ring.write_text(json.dumps({"keys": keys}))
    (token,) = run("mint", "--key", ring).lines
    assert isinstance(Checker(read_keys(key.read_bytes())).check(token, now=time.time(), origin=""), Valid)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ttl", "86401"], "cannot be good for 86401 s; with this key it is for more than 0 s and at most 86400 s"),
        (["--ttl", "0"], "cannot be good for 0 s"),
        (["--origin", "http://a.example"], "invalid origin 'http://a.example'; expected an https origin"),
        (["--origin", ""], "'--origin': empty"),
    ],
)
def test_what_cannot_be_minted(run, key, arguments, said):
    for also in ([], ["--json"]):
        told = run("mint", "--key", key, *arguments, *also)
        assert (told.code, told.out) == (2, b"")
        assert said in told.err
        assert told.err.count("\n") == 1


def test_a_public_half_says_which_file_mints(run, halves):
    _, proxy = halves
    told = run("mint", "--key", proxy)
    assert (told.code, told.out) == (2, b"")
    assert told.err.startswith(f"headgate: {proxy} has public halves alone")


def test_a_file_that_is_none_is_named_and_not_quoted(run, tmp_path):
    file = tmp_path / "key.json"
    file.write_text('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}')
    told = run("mint", "--key", file)
    assert told.code == 2
    assert told.err.startswith(f"headgate: {file}: the secret has 6 bytes")
    assert "c2VjcmV0" not in told.err
