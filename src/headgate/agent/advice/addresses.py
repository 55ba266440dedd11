"""The addresses of a host, in bounded time.

Whoever resolves a name cannot be interrupted. So it is done in a thread that nobody has to wait for, neither who asked
nor the program when it ends; and of such threads there are only so many, whatever name servers do.
"""

import os
import socket
import sys
import threading
from contextlib import suppress
from itertools import chain, zip_longest
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from headgate.agent.advice.deadline import Deadline

__all__ = ["MOST_RESOLVING", "Address", "addresses_of", "is_this_machine"]

MOST_RESOLVING: Final = 32
"""Names that are resolved at once. Beyond that one waits, as long as its own time lasts."""

_MOST_ADDRESSES: Final = 8
"""Addresses of a host that are tried; a name may have hundreds, of whom nobody asked to be connected to."""


class Address(NamedTuple):
    """Where to connect to, as the `socket` module has it."""

    family: socket.AddressFamily
    address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


def is_this_machine(host: str) -> bool:
    """Say whether a name is localhost or below it, with or without a dot at its end."""
    return f".{host.removesuffix('.')}".endswith(".localhost")


def addresses_of(host: str, port: int, deadline: Deadline) -> list[Address]:
    """Give the first few addresses of a host, of each family in turn; raises `OSError`, `TimeoutError` included.

    `host` is a name in ASCII, or an IP address without brackets.
    """
    if is_this_machine(host):
        # Such names are trusted because they are this machine's; no name server is asked whether they are.
        return [Address(socket.AF_INET6, ("::1", port)), Address(socket.AF_INET, ("127.0.0.1", port))]
    with suppress(socket.gaierror):
        return _look_up(host, port, socket.AI_NUMERICHOST)
    return _Resolving.now.resolve(host, port, deadline)


def _look_up(host: str, port: int, flags: int = 0) -> list[Address]:
    # As bytes: a text would be taken through a codec for names that are not ASCII, which refuses some that are.
    answers = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM, flags=flags)
    found = list(dict.fromkeys(Address(family, address) for family, _, _, _, address in answers))
    first = [address for address in found if address.family == found[0].family]
    other = [address for address in found if address.family != found[0].family]
    # RFC 8305, section 4: a family that leads nowhere is not tried to its end before the other.
    taking_turns = chain.from_iterable(zip_longest(first, other))
    return [address for address in taking_turns if address][:_MOST_ADDRESSES]


class _Resolving:
    """The names that are being resolved in this process."""

    now: "_Resolving"

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(MOST_RESOLVING)

    def resolve(self, host: str, port: int, deadline: Deadline) -> list[Address]:
        """Look a name up in a thread of its own, and wait for it as long as there is time."""
        if sys.is_finalizing():
            raise OSError("the program is ending")
        if not self._places.acquire(timeout=deadline.left()):
            raise TimeoutError
        found: SimpleQueue[list[Address] | BaseException] = SimpleQueue()
        try:
            threading.Thread(target=self._look_up, args=(host, port, found), name="headgate-name", daemon=True).start()
        except RuntimeError as error:
            self._places.release()
            raise OSError(str(error)) from error
        try:
            answer = found.get(timeout=deadline.left())
        except Empty:
            raise TimeoutError from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _look_up(self, host: str, port: int, found: "SimpleQueue[list[Address] | BaseException]") -> None:
        try:
            found.put(_look_up(host, port))
        except BaseException as error:
            found.put(error)
        finally:
            self._places.release()


def _begin_anew() -> None:
    # The threads that hold places stay behind in the process that was forked.
    _Resolving.now = _Resolving()


_begin_anew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
