import json
import os
import stat
from functools import partial

import pytest

from headgate.identity import read_signing_keys
from headgate.link.curve import read_allowed_keys, read_key_pair, read_public_key


@pytest.fixture
def run(headgate):
    """Run `headgate keys new`."""
    return partial(headgate, "keys", "new")


def mode(file):
    return stat.S_IMODE(file.stat().st_mode)


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def test_pair_is_written_and_read_back(run, tmp_path):
    folder = tmp_path / "new" / "folder"
    said = run("-o", folder)
    assert (said.code, said.err) == (0, "")
    pair = read_key_pair(str(folder / "secret.key"))
    assert pair.public == read_public_key(str(folder / "public.key"))
    assert read_allowed_keys(str(folder / "public.key")).keys() == {pair.public}
    assert names(folder) == ["public.key", "secret.key"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_the_secret(run, tmp_path, umask):
    before = os.umask(umask)
    try:
        run("-o", tmp_path)
    finally:
        os.umask(before)
    assert (mode(tmp_path / "secret.key"), mode(tmp_path / "public.key")) == (0o600, 0o644 & ~umask)


@pytest.mark.parametrize("name", ["secret.key", "public.key"])
def test_nothing_is_overwritten_and_no_second_file_is_left(run, tmp_path, name):
    (tmp_path / name).write_text("kept")
    said = run("-o", tmp_path)
    assert (said.code, said.out) == (2, b"")
    assert said.err.startswith(f"headgate: {tmp_path}/{name} exists already; key files are not overwritten")
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "kept"


def test_a_link_to_nothing_is_not_followed(run, tmp_path):
    (tmp_path / "secret.key").symlink_to(tmp_path / "elsewhere")
    assert run("-o", tmp_path).code == 2
    assert not (tmp_path / "elsewhere").exists()


def test_failure_to_write_leaves_no_file(run, tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = run("-o", tmp_path)
    assert (said.code, said.err) == (2, f"headgate: {tmp_path}/secret.key cannot be written: No space left on device\n")
    assert names(tmp_path) == []


def test_folder_that_cannot_be_created_is_an_error(run, tmp_path):
    (tmp_path / "file").write_text("")
    said = run("-o", tmp_path / "file" / "folder")
    assert said.code == 2
    assert "cannot be created: Not a directory" in said.err


def test_output_explains_the_files_and_the_next_commands(run, tmp_path):
    said = run("-o", tmp_path)
    key, text = read_public_key(str(tmp_path / "public.key")), said.out.decode()
    assert f"{tmp_path}/secret.key: the secret key" in text
    assert f"{tmp_path}/public.key: the public key {key.decode()}" in text
    assert f"headgate master --curve-key {tmp_path}/secret.key --curve-allow allowed.keys" in text
    assert f"headgate serve --curve-key {tmp_path}/secret.key --curve-server" in text
    assert read_key_pair(str(tmp_path / "secret.key")).secret.decode() not in text


def test_the_key_of_an_agent_is_new_private_and_in_its_directory(headgate, tmp_path):
    said = headgate("keys", "new", "--agent", "-o", tmp_path)
    file = tmp_path / "key.json"
    (key,) = read_signing_keys(file.read_bytes())
    assert (said.code, mode(file), names(tmp_path)) == (0, 0o600, ["key.json"])
    assert key.to_jwk()["d"] not in said.out.decode()
    assert headgate("keys", "new", "--agent", "-o", tmp_path).code == 2
    assert read_signing_keys(file.read_bytes())[0].key_id == key.key_id
    said = headgate("keys", "directory", file)
    assert (json.loads(said.out), said.err) == ({"keys": [key.public.to_jwk()]}, "")
    file.chmod(0o604)
    expected = f"warning: {file}: every user of this machine can read this secret key; use: chmod 600 {file}"
    assert expected in headgate("keys", "directory", file).err
    assert "expected a private Ed25519 JSON Web Key" in headgate("keys", "directory", __file__).err
    assert "no key file; make one with" in headgate("keys", "directory").err


def test_the_card_has_what_the_courtesy_sends(headgate):
    described = ["--name", "ExampleBot/1.0", "--agent-url", "https://bot.example", "--info", "https://bot.example/bot"]
    card = json.loads(headgate("keys", "directory", "--card", *described, "--rate", "60/min burst 5").out)
    assert {name: card[name] for name in ("client_id", "client_name", "client_uri", "jwks_uri")} == {
        "client_id": "https://bot.example/.well-known/signature-agent-card",
        "client_name": "ExampleBot",
        "client_uri": "https://bot.example/bot",
        "jwks_uri": "https://bot.example/.well-known/http-message-signatures-directory",
    }
    assert card["web_bot_auth"]["expected-user-agent"] == "ExampleBot/1.0 (+https://bot.example/bot)"
    assert card["web_bot_auth"]["rate-expectation"] == "60/min burst 5 to each origin"
    expected = "invalid name 'Bot 2/1.0'; expected letters, - and _ (RFC 9309), and a version: --name ExampleBot/1.0"
    assert expected in headgate("keys", "directory", "--card", "--name", "Bot 2/1.0").err
    assert "headgate: a\\x1b[31m b: No such file" in headgate("keys", "directory", "a\x1b[31m\nb").err
    assert "invalid agent URL ''" in headgate("keys", "directory", "--card", "--name", "ExampleBot").err


def test_the_page_of_an_agent_is_escaped_and_has_its_ranges(headgate):
    described = ["--name", "ExampleBot", "--agent-url", "https://bot.example", "--range", "192.0.2.0/24"]
    page = headgate(
        "keys", "page", *described, "--purpose", "<script>", "--ranges-url", 'https://a.example/"'
    ).out.decode()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert '<link rel="client-ranges" href="https://a.example/&quot;">' in page
    assert "<li>192.0.2.0/24</li>" in page
    assert "User-agent: ExampleBot\nDisallow: /" in page
    ranges = json.loads(headgate("keys", "page", "--json", "--range", "192.0.2.0/24", "--range", "2001:db8::/32").out)
    assert ranges["prefixes"] == [{"ipv4Prefix": "192.0.2.0/24"}, {"ipv6Prefix": "2001:db8::/32"}]
    assert ranges.keys() == {"synctoken", "creationTime", "prefixes"}
    assert "expected a CIDR such as 192.0.2.0/24" in headgate("keys", "page", "--json", "--range", "x").err
