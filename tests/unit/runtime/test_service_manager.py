import os
import socket

import pytest

from headgate.runtime.service_manager import ServiceManager, take_sockets


@pytest.mark.parametrize("prefix", ["", "@"], ids=["file", "abstract"])
def test_a_manager_is_told_whole_lines(tmp_path, prefix):
    path = f"{prefix}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path.replace("@", "\0"))
        environ = {"NOTIFY_SOCKET": path, "HOME": "/"}
        manager = ServiceManager(environ)
        assert environ == {"HOME": "/"}
        manager.notify("READY=1", "STATUS=two\nlines\udcff")
        assert receiver.recv(100) == b"READY=1\nSTATUS=two lines?"
        receiver.setblocking(False)
        for _ in range(1000):  # more than its queue has room for
            manager.notify("WATCHDOG=1")
    manager.notify("STOPPING=1")  # it is gone
    ServiceManager({}).notify("READY=1")


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_watchdog_is_that_of_this_process(variables, seconds):
    assert ServiceManager(variables | {"NOTIFY_SOCKET": "/absent"}).watchdog == seconds
    assert ServiceManager(variables).watchdog == 0.0


@pytest.mark.parametrize(
    ("pid", "count", "names", "found"),
    [
        (None, "2", "a:b", ["a", "b"]),
        (None, "2", "a", ["a", ""]),
        (None, "1", "", [""]),
        ("1", "2", "a:b", []),
        (None, "x", "", []),
        (None, "", "", []),
    ],
)
def test_sockets_are_taken_once_with_their_names(monkeypatch, pid, count, names, found):
    with socket.create_server(("127.0.0.1", 0)) as one:
        copies = [os.dup2(one.fileno(), 700 + index) for index in range(2)]
        monkeypatch.setattr("headgate.runtime.service_manager._FIRST_DESCRIPTOR", copies[0])
        environ = {"LISTEN_PID": pid or str(os.getpid()), "LISTEN_FDS": count, "LISTEN_FDNAMES": names}
        taken = take_sockets(environ)
        assert [name for name, _ in taken] == found
        assert environ == {}
        assert all(sock.getsockname() == one.getsockname() and not sock.get_inheritable() for _, sock in taken)
        for _, sock in taken:
            sock.close()
        for copy in copies[len(taken) :]:
            os.close(copy)
