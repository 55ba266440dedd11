"""The system's resolver, asked in threads of our own: it blocks, cannot be told to stop, and may take half a minute.

So there are many threads, but not without bound, and names below one registered name may have a part of them only: the
name server that does not answer holds up its own names. Nobody waits longer than they said, and a thread that is still
waiting then is left to itself. The threads are daemons, which no exit waits for. Nothing is remembered.

All counts are kept on the event loop; threads only take work and report.
"""

import asyncio
import queue
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

from headgate.agent.proxy.prefixes import Address
from headgate.agent.proxy.refusal import EXHAUSTED, Refusal

__all__ = ["LOOKUP_TIMEOUT", "SystemLookup"]

LOOKUP_TIMEOUT: Final = 6.0
"""Seconds. The system asks a name server again after five (resolv.conf(5)), so that one lost packet is survived."""

_IDLE_KEPT: Final = 4
"""Threads that stay when there is nothing to look up."""

_Found: TypeAlias = tuple[Address, ...]


class SystemLookup:
    """Looks names up: `await lookup("www.example.org")` gives the addresses, in the order the system would try them.

    Of at most `most` threads, names that end in the same two labels have at most `most_alike`; whoever finds none free
    waits, and within `seconds` of having asked there is an answer. Raises `Refusal` "name", and "connections" where the
    system gives no more threads, or no file to ask a name server with. For one event loop.
    """

    def __init__(
        self,
        *,
        most: int = 512,
        most_alike: int = 128,
        seconds: float = LOOKUP_TIMEOUT,
        getaddrinfo: Callable[..., Any] = socket.getaddrinfo,
    ) -> None:
        self._most = most
        self._most_alike = most_alike
        self._seconds = seconds
        self._getaddrinfo = getaddrinfo
        self._work: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._idle = 0
        self._busy: dict[str, int] = {}
        self._running = 0
        # By ending, so that finding the next to begin looks at no more endings than can have used up their part.
        self._waiting: OrderedDict[str, OrderedDict[_Question, None]] = OrderedDict()
        self._under_way: dict[str, _Question] = {}
        self._closed = False

    async def __call__(self, host: str) -> _Found:
        """Look a name up, written as the WHATWG's parser writes it; at least one address, each once."""
        question = _Question(host, asyncio.get_running_loop())
        self._enter(question)
        try:
            async with asyncio.timeout(self._seconds):
                return await question.answer
        except TimeoutError:
            why = f"{host} was not resolved within {self._seconds:g} s"
            raise Refusal("name", why, nearer="dns_timeout") from None
        finally:
            self._leave(question)

    def under_way(self, host: str) -> asyncio.Future[None] | None:
        """Give what is done when the thread that began last to look a name up has ended; None where none does."""
        question = self._under_way.get(host)
        return None if question is None else question.over

    def close(self) -> None:
        """Let the threads that have nothing to do end, and the others when they are done."""
        self._closed = True
        for _ in range(self._idle):
            self._work.put(None)
        self._idle = 0

    def _enter(self, question: "_Question") -> None:
        if self._may_begin(question.ending):
            self._begin(question)
        else:
            self._waiting.setdefault(question.ending, OrderedDict())[question] = None

    def _leave(self, question: "_Question") -> None:
        """Forget one that waits for its turn no longer."""
        alike = self._waiting.get(question.ending)
        if alike is not None and question in alike:
            del alike[question]
            if not alike:
                del self._waiting[question.ending]

    def _may_begin(self, ending: str) -> bool:
        return self._running < self._most and self._busy.get(ending, 0) < self._most_alike

    def _begin(self, question: "_Question") -> None:
        if self._idle:
            self._idle -= 1
        else:
            try:
                threading.Thread(target=self._serve, name="headgate-lookup", daemon=True).start()
            except RuntimeError as error:
                raise Refusal("connections", f"the system gives no more threads: {error}") from None
        self._running += 1
        self._under_way[question.host] = question
        self._busy[question.ending] = self._busy.get(question.ending, 0) + 1
        self._work.put(question)

    def _end(self, question: "_Question", outcome: _Found | Refusal) -> None:
        """Take a thread's report, and give it, or another, the next to look up."""
        self._running -= 1
        self._busy[question.ending] -= 1
        if not self._busy[question.ending]:
            del self._busy[question.ending]
        if self._under_way.get(question.host) is question:
            del self._under_way[question.host]
        question.over.set_result(None)
        if not question.answer.done():
            if isinstance(outcome, Refusal):
                question.answer.set_exception(outcome)
            else:
                question.answer.set_result(outcome)
        self._idle += 1
        following = self._following()
        if following is not None:
            self._begin(following)
        elif self._closed or self._idle > _IDLE_KEPT:
            self._idle -= 1
            self._work.put(None)

    def _following(self) -> "_Question | None":
        """Take out who waits longest for the ending whose turn it is."""
        for ending, alike in self._waiting.items():
            if self._may_begin(ending):
                question, _ = alike.popitem(last=False)
                if alike:
                    self._waiting.move_to_end(ending)
                else:
                    del self._waiting[ending]
                return question
        return None

    def _serve(self) -> None:
        """Look up what there is to look up; the whole life of a thread."""
        while (question := self._work.get()) is not None:
            outcome = self._ask(question.host)
            try:
                question.loop.call_soon_threadsafe(self._end, question, outcome)
            except RuntimeError:
                return  # the loop is closed, and nobody waits for this

    def _ask(self, host: str) -> _Found | Refusal:
        try:
            # As bytes, which no codec of Python's has a word in.
            found = self._getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
            addresses: dict[Address, None] = {}
            for *_, sockaddr in found:
                with suppress(ValueError):  # nothing but an address is an answer
                    addresses[ip_address(str(sockaddr[0]).partition("%")[0])] = None
        except Exception as error:  # whatever it is: a thread that died of it would keep its place for good
            why = f"{host} does not resolve: {getattr(error, 'strerror', None) or error}"
            return Refusal("connections" if _is_ours(error) else "name", why)
        return tuple(addresses) if addresses else Refusal("name", f"{host} has no address")


def _is_ours(error: Exception) -> bool:
    """Say whether a lookup failed for what this process lacks, whose fault no name is."""
    # A resolver's own errors have numbers of their own, which mean something else.
    return isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno in EXHAUSTED


class _Question:
    """A name to look up."""

    __slots__ = ("answer", "ending", "host", "loop", "over")

    def __init__(self, host: str, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self.loop = loop
        self.answer: asyncio.Future[_Found] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        """Done when its thread has ended, whoever still waits for the answer."""
        self.ending = ".".join(host.removesuffix(".").rsplit(".", 2)[-2:])
