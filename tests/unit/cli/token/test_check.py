import time

import pytest

from headgate.token import mint, read_keys


@pytest.fixture
def token(key):
    (made,) = read_keys(key.read_bytes())

    def token(**changes):
        return mint(made, **({"now": time.time(), "ttl": 60, "entropy": bytes} | changes))

    return token


def test_a_valid_token_is_exit_0_however_often(run, key, token):
    for _ in range(2):
        told = run("check", "--key", key, token())
        assert (told.code, told.err) == (0, "")
        assert told.out.decode() in {"valid for 60 s, any origin\n", "valid for 59 s, any origin\n"}
    told = run("check", "--key", key, "--json", token())
    assert (told.code, told.json["result"]) == (0, "valid")
    assert time.time() + 50 < told.json["expires"] < time.time() + 61


def test_a_bound_one_needs_its_origin(run, key, token):
    bound = token(origin="https://a.example")
    told = run("check", "--key", key, "--origin", "https://A.example/page", bound)
    assert (told.code, told.out.endswith(b" s, this origin alone\n")) == (0, True)
    told = run("check", "--key", key, "--origin", "https://b.example", bound)
    assert (told.code, told.out.startswith(b"token_invalid: of another key, ")) == (1, True)
    told = run("check", "--key", key, bound)
    assert (told.code, told.out) == (1, b"token_invalid: it is for one origin; name that with --origin\n")
    assert run("check", "--key", key, "--origin", "b.example", bound).code == 2


def test_what_is_not_valid_is_exit_1_and_the_proxys_word(run, key, token):
    for wrong, word in ((token(now=time.time() - 61), "token_expired"), ("x", "token_invalid"), ("", "token_invalid")):
        told = run("check", "--key", key, wrong)
        assert (told.code, told.err) == (1, "")
        assert told.out.decode().startswith(f"{word}: ")
        told = run("check", "--key", key, "--json", wrong)
        assert (told.code, told.json) == (1, {"result": word, "expires": None})


def test_a_public_half_checks(run, halves):
    site, proxy = halves
    made = run("mint", "--key", site).lines[0]
    assert run("check", "--key", proxy, made).code == 0


def test_standard_input_keeps_tokens_out_of_the_list_of_processes(run, key, token):
    assert run("check", "--key", key, "-", stdin=f"{token()}\n".encode()).code == 0
    assert run("check", "--key", key, "-", stdin=b"A" * 100_000).code == 1
    assert run("check", "--key", key, "-").code == 1
    told = run("check", "--key", key, "-", stdin=b"\xff\xfe\x80 no text\n")
    assert (told.code, told.out.partition(b":")[0], told.err) == (1, b"token_invalid", "")
