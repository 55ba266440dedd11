import os
import stat
from functools import partial

import pytest

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
