"""The one composition of throttle and traffic advice, which every transport sends its requests through.

This file knows nothing of any HTTP library. A transport asks for a `Passage` for each request, a redirect's included,
waits for what it says, tells it of the response, and asks again where it says so.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final

from headgate.advice import AgentIdentity
from headgate.advice.answer import Advice
from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.advice.record import PATIENCE
from headgate.advice.result import UNREACHABLE
from headgate.agent.advice import AdviceClient, StartFetch, in_thread
from headgate.agent.passage import Passage, carried_over
from headgate.agent.sharing.fork_hooks import FORK_HOOKS
from headgate.errors import ConfigurationError, NoContact
from headgate.throttle import Explanation, Policy, Throttle

if TYPE_CHECKING:
    from ssl import SSLContext  # which takes longer to import than all of this

__all__ = ["Courtesy"]

_PATIENCE: Final = 5.0
"""Seconds that a fork waits for whoever asks the throttle just then; more only who holds the lock and forks waits."""

_MAX_DELAY_OF_RETRIES: Final = 5.0
"""Seconds: the default of `max_delay` with `retry`. A retry always waits, so with 0 there would be none."""

_INTERACTIVE: Final[ContextVar[bool]] = ContextVar("headgate_interactive", default=False)


class Courtesy:
    """Holds an agent's requests back as long as their targets and origins ask for; any number of transports share one.

    A request that is held waits where its release is within `max_delay` seconds; else it raises `NoContact`, and
    nothing is sent. With `retry`, a request with a method that may be repeated is sent up to so many times more after
    429 or a status that counts as a failure. Each retry waits for its release time, and for a pause of its own: 0.5 to
    1 s, or 1 to 2 s after 429, twice as long for each further retry. Where that is more than `max_delay` seconds away,
    the response is returned instead. The throttle's retry budget is charged for each retry, where it has one.
    `max_delay` is 0 by default, or 5 with `retry`. It also bounds the wait for traffic advice, for which a request
    waits up to six seconds where `max_delay` is not given. It raises `NoContact` then.

    With an `identity`, each origin is asked for its traffic advice, and obeyed; without one, none is asked. It is a
    brand name such as `"ExampleBot"`, or a list of names: `["ExampleBot", "*"]` means the same. With
    `advice_clears_backoff`, the backoff of an origin that has just answered that it wants all traffic ends within ten
    seconds; its `Retry-After` stands. That is for origins whose advice comes from the application itself: a static file
    on a CDN wants all traffic while the application behind it fails. Advice is fetched with
    the client that sends the request; `tls` is for requests without one, instead of this machine's authorities.

    `throttle` is one of the caller's, for other bounds than the usual or to share it between processes; then the policy
    is its own, and a plain `Throttle` belongs to one courtesy. `clock` gives seconds since 1970, and `draw` numbers
    from [0, 1). Raises `ConfigurationError` for what cannot be meant. For any number of threads and event loops, and
    for a process that is forked and its parent: each goes on with what both knew.
    """

    def __init__(
        self,
        identity: Iterable[str] | None = None,
        *,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        throttle: Throttle | None = None,
        max_delay: float | None = None,
        retry: int = 0,
        advice_clears_backoff: bool = False,
        tls: "SSLContext | None" = None,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if max_delay is not None and not max_delay >= 0:
            raise ConfigurationError(f"max_delay must be a non-negative number of seconds, got {max_delay!r}")
        if isinstance(retry, bool) or not isinstance(retry, int) or retry < 0:
            raise ConfigurationError(f"retry must be a non-negative number of retries, got {retry!r}")
        if throttle is not None and policy not in {Policy(), throttle.policy}:
            raise ConfigurationError("policy: the throttle has one of its own; give it to the throttle, or no throttle")
        self.throttle = Throttle(policy, draw=draw) if throttle is None else throttle
        """The throttle; whoever asks it something while requests are on their way holds `lock`."""
        self.lock = threading.Lock()
        self.max_delay = max_delay if max_delay is not None else (_MAX_DELAY_OF_RETRIES if retry else 0.0)
        """Seconds that a held request may wait at most."""
        self.retry = retry
        """How often a request may be sent again at most."""
        self.clock = clock
        self.draw = draw
        self.advice_clears_backoff = advice_clears_backoff
        self.advice_wait = PATIENCE if max_delay is None else max_delay
        """Seconds that a request may wait at most until its origin's advice is known."""
        self.advice: AdviceClient | None = None
        """What fetches traffic advice; None where none is asked for."""
        if identity is not None:
            self.advice = AdviceClient(
                AgentIdentity(identity), clock=clock, on_advice=self._told, default=in_thread(partial(_fetch, tls=tls))
            )
        self._is_paused = False
        FORK_HOOKS.register(self, Courtesy._pause, Courtesy._resume)

    def passage(
        self,
        method: str,
        url: str,
        *,
        interactive: bool = False,
        repeatable: bool = True,
        refusal: type[NoContact] = NoContact,
        start_fetch: StartFetch | None = None,
    ) -> Passage:
        """Begin a request for an absolute URL.

        `interactive` is for one that a user waits for: no throttle holds it. One whose body is gone once it was sent is
        not `repeatable`. `refusal` is what is raised when it is held. `start_fetch` fetches the origin's advice
        with the client that sends the request; without it, headgate's own client does.
        """
        passage = Passage(self, method, url, interactive or _INTERACTIVE.get(), repeatable, refusal, start_fetch)
        if carried_over.get() is not None:
            passage.take_over()
        return passage

    @contextmanager
    def interactive(self) -> Iterator[None]:
        """Take every request begun inside, in this thread or task, for one that a user waits for."""
        token = _INTERACTIVE.set(True)
        try:
            yield
        finally:
            _INTERACTIVE.reset(token)

    def user_gesture(self) -> None:
        """Take note that the user has just clicked or typed: the throttle holds nothing for the next 3.5 seconds."""
        with self.lock:
            self.throttle.user_gesture(now=self.clock())

    def malformed_body(self, url: str, status: int) -> None:
        """Take note that the body of a response which was received proves broken."""
        with self.lock:
            self.throttle.malformed_body(url, status, now=self.clock())

    def network_changed(self) -> None:
        """Forget what fails: it may have been the network. What opted out of throttling stays so."""
        with self.lock:
            self.throttle.reset()

    def explain(self, url: str) -> Explanation:
        """Say what the throttle knows of `url`, and why it is held or free."""
        with self.lock:
            return self.throttle.explain(url, now=self.clock())

    def _told(self, advice: Advice) -> None:
        """Clear the backoff where an origin has just said that it is well."""
        if not self.advice_clears_backoff or advice.result is None or advice.result is UNREACHABLE:
            return
        if advice.result.wants_all:
            with self.lock:
                self.throttle.clear_backoff(advice.origin, now=self.clock())

    def _pause(self) -> None:
        """Let nobody be halfway through the throttle while the process is forked."""
        self._is_paused = self.lock.acquire(timeout=_PATIENCE)
        if self.advice is not None:
            self.advice.pause()

    def _resume(self, is_child: bool) -> None:  # noqa: FBT001 - for nobody else
        """Go on after a fork; the threads that the parent has are not in the child."""
        if self.advice is not None:
            self.advice.resume(is_child=is_child)
        if is_child:  # which may be of a fork that nobody was told of before
            self.lock = threading.Lock()
        elif self._is_paused:
            self.lock.release()


def _fetch(request: AdviceRequest, *, tls: "SSLContext | None") -> AdviceResponse:
    """Fetch with headgate's own client, which is imported when it is needed."""
    from headgate.fetch.fetcher import fetch_advice

    return fetch_advice(request, tls=tls)
