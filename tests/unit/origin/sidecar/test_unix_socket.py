import asyncio
import os
import socket
import stat
from contextlib import ExitStack

import pytest

from headgate.config.section import MAX_SOCKET_PATH
from headgate.errors import ConfigurationError
from headgate.origin.sidecar.unix_socket import UnixSocket


def listen(path, mode=0o600):
    return UnixSocket(str(path), mode=mode, flag="--nginx-lua")


def connect(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def refused(path):
    with pytest.raises(ConfigurationError) as raised:
        listen(path)
    return str(raised.value)


def leave_stale(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_file_has_the_mode_whatever_the_umask(tmp_path, mode):
    before = os.umask(0o077)
    try:
        unix = listen(tmp_path / "s", mode)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == mode
    connect(tmp_path / "s")
    unix.close()


def test_file_is_never_more_open_than_its_mode(tmp_path, monkeypatch):
    modes = []
    bind = socket.socket.bind

    def spy(self, path):
        bind(self, path)
        modes.append(stat.S_IMODE(os.lstat(path).st_mode))

    monkeypatch.setattr(
        "headgate.origin.sidecar.unix_socket.socket.socket", type("Spy", (socket.socket,), {"bind": spy})
    )
    listen(tmp_path / "s").close()
    assert modes == [0]
    assert list(tmp_path.iterdir()) == []


def test_file_of_another_process_is_not_removed_at_the_end(tmp_path):
    unix = listen(tmp_path / "s")
    (tmp_path / "s").rename(tmp_path / "old")
    other = listen(tmp_path / "s")
    unix.close()
    connect(tmp_path / "s")
    other.close()


def test_file_of_a_process_that_starts_at_the_same_time_is_not_replaced(tmp_path, monkeypatch):
    """A file system may give the number of the stale file's inode to the new file."""
    path, started = tmp_path / "s", []
    leave_stale(path)
    os.utime(path, (0, 0))  # the two are created within one tick of the clock of the file system

    class Spy(socket.socket):
        def connect_ex(self, address):
            number = super().connect_ex(address)
            if not started:
                started.append(None)
                started[:] = [listen(path)]
            return number

    monkeypatch.setattr("headgate.origin.sidecar.unix_socket.socket.socket", Spy)
    assert "Address already in use" in refused(path)
    try:
        connect(path)
    finally:
        started[0].close()


def test_file_that_its_process_removes_meanwhile_is_no_error(tmp_path, monkeypatch):
    class Spy(socket.socket):
        def connect_ex(self, address):
            (tmp_path / "s").unlink()
            return super().connect_ex(address)

    leave_stale(tmp_path / "s")
    monkeypatch.setattr("headgate.origin.sidecar.unix_socket.socket.socket", Spy)
    unix = listen(tmp_path / "s")
    connect(tmp_path / "s")
    unix.close()


def test_socket_whose_queue_is_full_is_in_use(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        queued = []
        for _ in range(4):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            client.connect_ex(path)
            queued.append(client)
        assert "is in use (another process listens)" in refused(path)
        for client in queued:
            client.close()


@pytest.mark.parametrize("kind", ["file", "folder", "link to a stale socket", "dangling link"])
def test_what_is_not_a_socket_is_never_removed(tmp_path, kind):
    path = tmp_path / "s"
    if kind == "file":
        path.write_text("content")
    elif kind == "folder":
        path.mkdir()
    else:
        if "stale" in kind:
            leave_stale(tmp_path / "target")
        path.symlink_to(tmp_path / "target")
    assert refused(path) == f"--nginx-lua: {str(path)!r} exists and is not a socket; remove it, or name another path"
    assert path.is_symlink() or path.exists()


def test_longest_path_works_and_a_longer_one_names_the_limit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listen("s" * MAX_SOCKET_PATH).close()
    too_long = "s" * MAX_SOCKET_PATH + "ß"
    assert refused(too_long) == (
        f"--nginx-lua: path too long: {too_long!r} has {MAX_SOCKET_PATH + 2} bytes; the path of a unix socket has at "
        f"most {MAX_SOCKET_PATH}"
    )


def test_many_connections_wait_while_the_event_loop_is_busy(tmp_path):
    async def serve():
        unix = listen(tmp_path / "s")
        server = await unix.serve(asyncio.Protocol)
        with ExitStack() as stack:
            for _ in range(500):
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(tmp_path / "s"))
        server.close()
        unix.close()

    asyncio.run(serve())
