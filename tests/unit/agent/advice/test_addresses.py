"""Addresses of hosts: of names whose servers answer, hang or lie, and of what no name server is asked for."""

import socket
import sys
import threading
from contextlib import contextmanager
from queue import SimpleQueue

import pytest

from headgate.agent.advice import addresses
from headgate.agent.advice.addresses import MOST_RESOLVING, Address, addresses_of, is_this_machine
from headgate.agent.advice.deadline import Deadline
from tests.unit.agent.advice.programs import printed

REAL = socket.getaddrinfo


def answer(*found: str, port: int = 443) -> list[tuple[object, ...]]:
    """What getaddrinfo says of these IP addresses."""
    return [entry for address in found for entry in REAL(address, port, type=socket.SOCK_STREAM)]


class NameServer:
    """Answers once it may; remembers who asked, for what and in which thread."""

    def __init__(self, *found: str) -> None:
        self.found = found
        self.may = threading.Event()
        self.asked: SimpleQueue[tuple[bytes, threading.Thread]] = SimpleQueue()

    def getaddrinfo(self, host, port, *, flags, **options):
        if flags & socket.AI_NUMERICHOST:
            return REAL(host, port, flags=flags, **options)
        self.asked.put((host, threading.current_thread()))
        self.may.wait()
        if not self.found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answer(*self.found, port=port)


@contextmanager
def hanging(monkeypatch, *found: str):
    server = NameServer(*found)
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    try:
        yield server
    finally:
        server.may.set()
        while not server.asked.empty():
            server.asked.get()[1].join()


@pytest.fixture
def silent(monkeypatch):
    """A name server that answers nobody before the test is over, if it does not say otherwise."""
    monkeypatch.setattr(addresses._Resolving, "now", addresses._Resolving())
    with hanging(monkeypatch) as server:
        yield server


def look_up(host: str, *, seconds: float = 30, port: int = 443) -> list[Address]:
    return addresses_of(host, port, Deadline(seconds))


def gone(host: str) -> bool:
    """Whether the time is over before the host is known."""
    try:
        look_up(host, seconds=0.01)
    except TimeoutError:
        return True
    except OSError:
        return False
    return False


@pytest.mark.parametrize("host", ["localhost", "localhost.", "a.localhost", "a.b.localhost."])
def test_no_name_server_is_asked_for_this_machine(host, silent):
    assert look_up(host, port=80) == [
        (socket.AF_INET6, ("::1", 80)),
        (socket.AF_INET, ("127.0.0.1", 80)),
    ]
    assert silent.asked.empty()
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["localhost.example", "notlocalhost", "localhost..", "127.0.0.1", ""])
def test_no_other_name_is_this_machine_s(host):
    assert not is_this_machine(host)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", (socket.AF_INET, ("127.0.0.1", 80))),
        ("::1", (socket.AF_INET6, ("::1", 80, 0, 0))),
        ("2001:db8::1", (socket.AF_INET6, ("2001:db8::1", 80, 0, 0))),
    ],
)
def test_no_name_server_is_asked_for_an_address_and_no_thread_is_needed(host, expected, silent, monkeypatch):
    monkeypatch.setattr(threading, "Thread", None)
    assert look_up(host, port=80) == [expected]
    assert silent.asked.empty()


def test_a_name_is_looked_up_as_it_is_in_a_thread_that_keeps_no_program_from_ending(silent):
    silent.found = ("192.0.2.1",)
    silent.may.set()
    assert look_up("a_b.xn--bcher-kva.example.") == [(socket.AF_INET, ("192.0.2.1", 443))]
    name, thread = silent.asked.get()
    assert name == b"a_b.xn--bcher-kva.example."
    assert thread is not threading.current_thread()
    assert thread.daemon


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example", "."])
def test_a_name_that_cannot_be_is_no_more_than_an_error(host):
    with pytest.raises(OSError):  # noqa: PT011 - each system has its own words
        look_up(host)


def test_families_take_turns_and_only_a_few_addresses_are_given(silent):
    silent.may.set()
    silent.found = (*(f"2001:db8::{number}" for number in range(1, 10)), "192.0.2.1", "192.0.2.2", "192.0.2.1")
    assert [address[0] for _, address in look_up("many.example")] == [
        "2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2",
        "2001:db8::3", "2001:db8::4", "2001:db8::5", "2001:db8::6",
    ]  # fmt: skip


def test_what_the_name_server_says_is_an_error_here(silent):
    silent.may.set()
    with pytest.raises(socket.gaierror, match="not known"):
        look_up("none.example")


def test_whatever_goes_wrong_in_the_thread_goes_wrong_here(silent, monkeypatch):
    def fail(host, port, *, flags, **options):
        if flags:
            raise socket.gaierror
        raise ZeroDivisionError

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(ZeroDivisionError):
        look_up("odd.example")


def test_a_name_server_that_hangs_is_given_up(silent):
    with pytest.raises(TimeoutError):
        look_up("slow.example", seconds=0.01)
    assert silent.asked.get()[0] == b"slow.example"


def test_only_so_many_names_are_resolved_at_once_and_the_next_waits_for_its_turn(silent):
    assert all(gone(f"{number}.example") for number in range(MOST_RESOLVING))
    assert silent.asked.qsize() == MOST_RESOLVING
    assert all(gone(f"{number}.more.example") for number in range(3))
    assert silent.asked.qsize() == MOST_RESOLVING
    silent.found = ("192.0.2.1",)
    waits = threading.Thread(target=lambda: found.put(look_up("next.example")))
    found: SimpleQueue[list[Address]] = SimpleQueue()
    waits.start()
    silent.may.set()
    assert found.get(timeout=30) == [(socket.AF_INET, ("192.0.2.1", 443))]
    waits.join()
    assert look_up("free.example")


def test_a_thread_that_cannot_be_had_is_an_error_and_takes_no_place(silent, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(MOST_RESOLVING + 1):
            with pytest.raises(OSError, match="can't start new thread"):
                look_up("a.example")
    silent.found = ("192.0.2.1",)
    silent.may.set()
    assert look_up("a.example")


def test_no_name_is_resolved_once_the_program_has_ended(silent, monkeypatch):
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    with pytest.raises(OSError, match="ending"):
        look_up("late.example")
    assert silent.asked.empty()


HUNG = """
    import os, socket, sys, threading

    real, never = socket.getaddrinfo, threading.Event()

    def getaddrinfo(host, port, *, flags, **options):
        if not flags and b"slow" in host:
            never.wait()
        return real(host if flags else "127.0.0.1", port, flags=flags, **options)

    socket.getaddrinfo = getaddrinfo
    from headgate.agent.advice.addresses import MOST_RESOLVING, addresses_of
    from headgate.agent.advice.deadline import Deadline

    for _ in range(MOST_RESOLVING):
        try:
            addresses_of("slow.example", 443, Deadline(0.001))
        except TimeoutError:
            print("given up")
    """


def test_a_program_ends_while_name_servers_hang():
    assert printed(HUNG) == "given up\n" * MOST_RESOLVING


def test_a_process_that_is_forked_has_its_own_places():
    program = (
        HUNG
        + """
    sys.stdout.flush()
    child = os.fork()
    if not child:
        print(addresses_of("fast.example", 443, Deadline(20)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    """
    )
    assert printed(program).splitlines()[MOST_RESOLVING:] == [
        "[Address(family=<AddressFamily.AF_INET: 2>, address=('127.0.0.1', 443))]"
    ]
