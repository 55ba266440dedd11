import json
import os
import stat
import sys

import pytest

from headgate.token import read_keys


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_key_is_its_owners_alone_whatever_the_umask(run, tmp_path, umask):
    file = tmp_path / "key.json"
    told = run("new-key", "-o", file)
    assert (told.code, told.out) == (0, b"")
    assert told.err.startswith(f"{file}: an hmac-sha256 key; ")
    assert mode(file) == 0o600
    (key,) = read_keys(file.read_bytes())
    assert (key.algorithm, key.can_mint, key.max_ttl) == ("hmac-sha256", True, 86_400)


def test_key_json_is_the_key_file_where_none_is_named(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("new-key").code == 0
    assert mode(tmp_path / "key.json") == 0o600
    assert run("new-key").code == 2  # it is never overwritten
    (token,) = run("mint").lines
    assert run("check", token).code == 0
    assert run("rules", "--proxy", "https://p.example", "https://example.org/").code == 0


def test_two_halves_for_two_machines(run, halves):
    site, proxy = halves
    (private,), (public,) = (read_keys(file.read_bytes()) for file in halves)
    assert (private.algorithm, private.can_mint, public.can_mint) == ("ed25519", True, False)
    assert private.key_id == public.key_id
    assert (mode(site), mode(proxy) & 0o600) == (0o600, 0o600)
    assert '"d"' not in proxy.read_text()


def test_no_two_keys_are_the_same(run, tmp_path):
    for algorithm in ("hmac-sha256", "ed25519"):
        ids = set()
        for number in range(3):
            file = tmp_path / f"{algorithm}-{number}.json"
            run("new-key", "--algorithm", algorithm, "-o", file)
            ids.add(read_keys(file.read_bytes())[0].key_id)
        assert len(ids) == 3


def test_how_long_a_token_may_last_is_in_the_file(run, tmp_path):
    run("new-key", "-o", tmp_path / "key.json", "--max-ttl", "300")
    assert read_keys((tmp_path / "key.json").read_bytes())[0].max_ttl == 300


def test_nothing_is_overwritten(run, key, tmp_path):
    before = key.read_bytes()
    for arguments in (["-o", key], ["-o", tmp_path / "new.json", "--algorithm", "ed25519", "--public", key]):
        told = run("new-key", *arguments)
        assert (told.code, told.out) == (2, b"")
        assert told.err == f"headgate: {key} is there already, and no key is overwritten\n"
    assert key.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["key.json"]


def test_no_link_leads_to_what_is_overwritten_or_made(run, tmp_path):
    (tmp_path / "there").write_text("x")
    for name, target in (("old.json", "there"), ("new.json", "not there")):
        (tmp_path / name).symlink_to(tmp_path / target)
        assert run("new-key", "-o", tmp_path / name).code == 2
    assert (tmp_path / "there").read_text() == "x"
    assert not (tmp_path / "not there").exists()


def test_both_files_are_made_or_neither(run, tmp_path):
    same = tmp_path / "key.json"
    told = run("new-key", "--algorithm", "ed25519", "-o", same, "--public", same)
    assert (told.code, list(tmp_path.iterdir())) == (2, [])
    told = run("new-key", "--algorithm", "ed25519", "-o", same, "--public", tmp_path / "no" / "where")
    assert (told.code, list(tmp_path.iterdir())) == (2, [])


def test_a_shared_secret_has_no_public_half(run, tmp_path):
    told = run("new-key", "-o", tmp_path / "key.json", "--public", tmp_path / "public.json")
    assert told.code == 2
    assert "--algorithm ed25519" in told.err
    assert list(tmp_path.iterdir()) == []


def test_a_key_can_go_to_standard_output_where_a_store_for_secrets_waits(run):
    told = run("new-key", "-o", "-")
    assert told.code == 0
    assert json.loads(told.out)["keys"][0]["kty"] == "oct"
    assert run("mint", "--key", "-", stdin=told.out).code == 0
    told = run("new-key", "--algorithm", "ed25519", "-o", "-", "--public", "-")
    assert (told.code, told.out) == (2, b"")


def test_without_cryptography_there_is_hmac(run, halves, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    told = run("mint", "--key", halves[0])
    assert told.code == 2
    assert told.err.startswith(f"headgate: {halves[0]}: a token key on Ed25519 needs the extra 'sign'")
    assert run("new-key", "-o", tmp_path / "key.json").code == 0
    told = run("new-key", "--algorithm", "ed25519", "-o", tmp_path / "other.json")
    assert told.code == 2
    assert "pip install '.[sign]'" in told.err
    assert not (tmp_path / "other.json").exists()
