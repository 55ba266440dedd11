"""`Courtesy`: what a program makes once, and every request of its HTTP clients goes through.

It puts throttle and traffic advice together. This file knows nothing of any HTTP library: a transport asks for an
`Attempt` for each request, a redirect's included, waits as it says, and reports the response.
"""

import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.advice import AgentIdentity
from headgate.advice.decision import Advice
from headgate.advice.fetching import AdviceRequest, AdviceResponse
from headgate.advice.freshness import MIN_FRESHNESS
from headgate.agent.advice_client import StartFetch, in_thread
from headgate.agent.attempt import Attempt, follows_interactive
from headgate.agent.retry import Retry
from headgate.agent.state import CourtesyState, Event
from headgate.agent.wait import FetchWait
from headgate.errors import ConfigurationError, RetryLater, check_seconds, fail_any, fail_if
from headgate.http.fields import is_token
from headgate.http.url import parse_url, serialised_origin
from headgate.throttle import Explanation, Policy, Throttle
from headgate.throttle.fields import Headers
from headgate.throttle.throttle import RETRY_BUDGET

if TYPE_CHECKING:
    from os import PathLike
    from ssl import SSLContext  # which takes longer to import than all of this

    from headgate.agent.pace import Concurrency
    from headgate.agent.signature import AgentSigner, Sign


_INTERACTIVE: Final[ContextVar[bool]] = ContextVar("headgate_interactive", default=False)

_LEAST_DRAW: Final = 2.0**-53
"""The draw that every fraction but 0 permits."""


class Courtesy(AbstractContextManager["Courtesy"], AbstractAsyncContextManager["Courtesy"]):
    """Holds an agent's requests back for as long as their targets and origins ask; any number of clients share one.

    A held request waits if its release is at most `wait` seconds away. Otherwise it raises `RetryLater`, and nothing
    is sent.

    * `identity`: the agent's name, such as `"ExampleBot"` or `"ExampleBot/1.0"`, or a list of names; `["ExampleBot",
      "*"]` means the same. Each request has it as its User-Agent, unless the program sets one, with the URL
      `info` of a page about it. Each origin is asked for its traffic advice, and the advice for the name without its
      version is obeyed. Without a name, no advice is fetched.
    * `policy`: how long an agent backs off after failures.
    * `wait`: maximum seconds that a held request waits, True for as long as it takes; default 0, or 5 with `retry`. It
      also limits the wait for traffic advice. If it is not given, a request waits up to six seconds for advice.
    * `retry`: how often a request is sent again after 408, 425, 429, 500, 502, 503, 504 or a refused or broken
      connection, if it is idempotent; or a `Retry` with other limits. Default 0, or 3 with `wait=True`. A retry waits
      for the release time, and at least for a pause: 0.5 to 1 s (1 to 2 s after 429), doubled for each further one. If
      that is longer than `wait`, the response is returned instead.
    * `retry_budget`: retries available for each origin, None for any number; ten successes add one.
    * `robots`: obey each origin's robots.txt (RFC 9309), with its Crawl-delay and Request-rate; for the extra `robots`.
    * `rate`: requests to each origin, such as `"1/s"` or `"1/s burst 5"`. `concurrency`: requests to each origin that
      are in flight at most, until their responses end with httpx and aiohttp, or until the head of these; "adaptive"
      for fewer while responses take longer. A request waits for its turn, for `wait` seconds at most if that is given.
      With `wait` or `retry`, requests come back gradually after a failure of their origin, and what remains of a
      limit by RateLimit fields is spread over its window.
    * `min_freshness`: minimum seconds that fetched advice stays fresh, whatever its response says; default 600, as the
      document suggests. Lower it in tests only: origins are asked more often.
    * `on_event`: called with an `Event` when a request is held, sent, answered or retried and when advice was fetched;
      in any thread or task. Its errors are logged. The logger `headgate.agent` logs holds and retries at INFO.
    * `key`: the path of a key file made by `headgate keys new --agent`, with which each request over https is signed by
      Web Bot Auth, and each fetch of advice and robots.txt; for the extra `sign`. `agent_url`: where the public keys
      are, such as `"https://bot.example"`; origins know the agent by this URL. `sign`: `"when-asked"` signs only to
      origins that have answered 401, 403 or 429 with `Accept-Signature`; a request that may be repeated is sent again
      then, once. Default `"always"`.
    * `throttle`: a throttle with other limits, or one shared between processes. It has its own policy and retry
      budget. A plain `Throttle` belongs to one courtesy.
    * `tls`: the TLS context for fetching advice when no client is at hand. Otherwise the client that sends the request
      also fetches the advice.
    * `clock`: returns seconds since 1970. `draw`: returns random numbers in [0, 1).

    Raises `ConfigurationError` for invalid or contradictory arguments.

    A courtesy may be used by any number of threads and event loops. After a fork, parent and child continue
    independently from what was known. Entries that are no longer needed are dropped with later responses and fetches.
    `close`, or a `with` or `async with` block, ends the fetching of advice.
    """

    def __init__(
        self,
        identity: Iterable[str] | None = None,
        *,
        info: str | None = None,
        policy: Policy | None = None,
        throttle: Throttle | None = None,
        wait: bool | float | None = None,
        retry: int | Retry | None = None,
        retry_budget: int | None = RETRY_BUDGET,
        robots: bool = False,
        rate: str | None = None,
        concurrency: "Concurrency | None" = None,
        min_freshness: float = MIN_FRESHNESS,
        on_event: Callable[[Event], object] | None = None,
        key: "str | PathLike[str] | None" = None,
        agent_url: str | None = None,
        sign: "Sign | None" = None,
        tls: "SSLContext | None" = None,
        clock: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._options = {name: value for name, value in locals().items() if name != "self"}
        _check_options(clock, draw, tls, wait, on_event)
        if throttle is None:
            throttle = Throttle(Policy() if policy is None else policy, draw=draw, retry_budget=retry_budget)
        else:
            _check_throttle(throttle, policy, retry_budget)
        self._identity, self.user_agent = _named(identity, info)
        """The User-Agent of all requests whose program sets none; empty without an identity."""
        self._state = state = CourtesyState(
            throttle,
            self._identity,
            user_agent=self.user_agent,
            signer=_new_signer(key, agent_url, sign),
            wait=wait,
            retry=retry,
            robots=robots,
            rate=rate,
            concurrency=concurrency,
            min_freshness=min_freshness,
            on_event=on_event,
            start_fetch=in_thread(partial(_fetch, tls=tls)),
            clock=clock,
            draw=draw,
        )
        self._robots = robots
        self.throttle = throttle
        """The throttle; do not call it from one thread while requests are on their way in another."""
        self.fetches_advice = identity is not None or robots
        """Whether origins are asked for their traffic advice or robots.txt."""
        self.retry = state.retry
        """Which requests are sent again."""
        self.may_repeat = state.retry.attempts > 0 or (state.signer is not None and state.signer.when_asked)
        """Whether any request is sent again, after a failure or with a signature."""

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as the options that it was made with; a shared throttle stays shared."""
        return partial(type(self), **self._options), ()

    def __repr__(self) -> str:
        identity = None if self._identity is None else list(self._identity)
        return f"<Courtesy identity={identity!r} wait={self._state.max_delay:g} retry={self.retry.attempts}>"

    @property
    def clock(self) -> Callable[[], float]:
        """Returns seconds since 1970."""
        return self._state.clock

    @property
    def counters(self) -> dict[str, int]:
        """The number of events of each kind so far, see `Event`; a request is counted as sent when it has ended."""
        answered, others = self._state.answered, self._state.counters
        counts = {"sent": answered + others["lost"], "answered": answered, **others}
        return {kind: count for kind, count in counts.items() if count}

    def attempt(
        self,
        method: str,
        url: str,
        *,
        interactive: bool = False,
        repeatable: bool = True,
        idempotent: bool = False,
        refusal: type[RetryLater] = RetryLater,
        start_fetch: StartFetch | None = None,
    ) -> Attempt:
        """Begin a request for an absolute URL; for transports, which `attempt.py` shows how to write.

        The throttle does not hold `interactive` requests, which a user waits for. A request is not `repeatable` if its
        body can be sent only once, and is `idempotent` with an Idempotency-Key. `refusal` is raised if the request is
        held. `start_fetch` fetches the origin's advice with the client that sends the request, instead of headgate's
        own client.
        """
        return Attempt(
            self._state,
            method.upper(),
            url,
            self.throttle.target(url) or url,
            interactive or _INTERACTIVE.get() or follows_interactive(url),
            repeatable,
            idempotent,
            refusal,
            start_fetch,
            self._state.adds_fields,
        )

    def release(self, url: str, *, interactive: bool = False) -> float:
        """Return when a request for `url` may be sent, in seconds since 1970, without sending it; `ASAP` for now.

        It is the later of what the throttle and the origin's traffic advice ask for, and `NEVER` if they allow none.
        Unknown advice is fetched by headgate's own client, for as long as a request would wait; if that takes too long,
        the returned instant is when to ask again. A fraction above 0 holds no URL here, since each request draws when
        it is sent. Not for event loops: see `release_async`. Raises `ConfigurationError` if `url` is not an absolute
        http or https URL.
        """
        steps = self._release(url, interactive=interactive)
        while isinstance(step := next(steps), FetchWait):
            step.block()
        return step

    async def release_async(self, url: str, *, interactive: bool = False) -> float:
        """Do the same without blocking the event loop, of asyncio or trio, while advice is fetched."""
        steps = self._release(url, interactive=interactive)
        while isinstance(step := next(steps), FetchWait):
            await step.settle()
        return step

    def sitemaps(self, url: str) -> list[str]:
        """Return the sitemaps that the robots.txt of the origin of `url` names, and fetch it if it is not known.

        Raises `ConfigurationError` without `robots=True`. Not for event loops.
        """
        from headgate.agent.robots import rules_of

        fail_if(not self._robots, "sitemaps are in robots.txt; make the Courtesy with robots=True")
        self.release(url)
        known = self._state.known(_http_origin(url), now=self._state.clock())
        rules = [rules_of(each) for each in known]
        return [sitemap for each in rules if each is not None for sitemap in each.parser.sitemaps]

    def explain(self, url: str) -> Explanation:
        """Return what would happen to a GET of `url` now, and why: as values, and by `str` as a sentence."""
        _check_text(url)
        return self._state.explain_all(url)

    def observe(self, url: str, status: int, headers: Headers, *, method: str = "GET") -> None:
        """Count a response that came by another way than this courtesy's transports, such as a browser."""
        _check_text(url)
        with self._state.lock:
            self.throttle.response_received(url, status, headers, now=self._state.clock(), method=method)

    def lost(self, url: str) -> None:
        """Count a request of another way for which no connection was made."""
        _check_text(url)
        with self._state.lock:
            self.throttle.request_lost(url, now=self._state.clock())

    def clear(self, url: str) -> None:
        """Drop all holds, failures and the used retry budget of the origin of `url`."""
        _check_text(url)
        with self._state.lock:
            self.throttle.clear(url)

    def scripted(self, clock: Callable[[], float], pass_time: Callable[[float], None]) -> AbstractContextManager[None]:
        """Use another clock, call `pass_time` with the seconds of each wait in its place, and fetch nothing.

        `headgate.agent.testing` is made of it.
        """
        return self._state.scripted(clock, pass_time)

    @contextmanager
    def interactive(self) -> Iterator[None]:
        """Treat every request begun inside, in this thread or task, as one that a user waits for."""
        token = _INTERACTIVE.set(True)
        try:
            yield
        finally:
            _INTERACTIVE.reset(token)

    def user_gesture(self) -> None:
        """Record that the user has just clicked or typed: the throttle holds nothing for the next 3.5 seconds."""
        with self._state.lock:
            self.throttle.user_gesture(now=self._state.clock())

    def malformed_body(self, url: str, status: int) -> None:
        """Record that the body of a response which was received is malformed."""
        _check_text(url)
        with self._state.lock:
            self.throttle.malformed_body(url, status, now=self._state.clock())

    def close(self) -> None:
        """Fetch no more advice; further requests raise `RuntimeError`. A throttle that was given stays open."""
        self._state.close()

    def _release(self, url: str, *, interactive: bool) -> Generator[FetchWait | float, None, None]:
        """Yield what to wait for, and then the release time."""
        state, origin = self._state, _http_origin(url)
        interactive = interactive or _INTERACTIVE.get()
        left = state.max_advice_delay
        while True:
            with state.lock:
                now = self._state.clock()
                release = self.throttle.release_time(url, now=now, interactive=interactive)
            answers = state.ask(origin, is_held=release > now, now=now)
            known = [state.holder(each, "GET", url, _LEAST_DRAW) for each in answers if isinstance(each, Advice)]
            release = max([release, *(holder.release_time for holder in known)])
            pending = [each for each in answers if not isinstance(each, Advice)]
            if not pending:
                yield release
            elif left <= 0 or not pending[0].is_under_way or state.is_closed:
                yield max(release, pending[0].until)
            else:
                wait = FetchWait(pending[0].finished, min(left, pending[0].until - now))
                left -= wait.seconds
                yield wait


def _named(identity: Iterable[str] | None, info: str | None) -> tuple[AgentIdentity | None, str]:
    """Return the names to match advice with, and the User-Agent."""
    version = ""
    if isinstance(identity, str):
        identity, slash, version = identity.partition("/")
        fail_if(
            slash and not is_token(version),
            f"the version of {identity!r} must be a token such as '1.0', got {version!r:.80}",
        )
    fail_if(
        info is not None and (identity is None or parse_url(info) is None or not info.isprintable() or " " in info),
        f"info must be the URL of a page about the agent, beside its name; got {info!r:.80}",
    )
    if identity is None:
        return None, ""
    names = AgentIdentity(identity)
    product = f"{names.brand}/{version}" if version else names.brand
    return names, f"{product} (+{info})" if info else product


def _new_signer(key: Any, agent_url: Any, sign: "Sign | None") -> "AgentSigner | None":
    if key is None and agent_url is None and sign is None:
        return None
    fail_any(
        (key is None, "agent_url and sign need a key: a file made by: headgate keys new --agent"),
        (agent_url is None, "key needs an agent_url: where the public keys are, such as 'https://bot.example'"),
    )
    from headgate.agent.signature import AgentSigner

    return AgentSigner(key, agent_url, sign or "always")


def _http_origin(url: str) -> str:
    _check_text(url)
    origin = serialised_origin(url)
    if origin is None or not origin.startswith(("http://", "https://")):
        raise ConfigurationError(f"{url[:200]!r} is not an http or https URL such as 'https://example.com/'")
    return origin


def _check_text(url: object) -> None:
    if not isinstance(url, str):
        raise ConfigurationError(f"expected a URL such as 'https://example.com/', got {url!r:.80}")


def _check_options(clock: object, draw: object, tls: object, wait: object, on_event: object) -> None:
    """Raise `ConfigurationError` for an option that cannot be used."""
    if wait is not None and not isinstance(wait, bool):
        check_seconds("wait", wait)
    is_hook = on_event is None or callable(on_event)
    fail_if(not is_hook, f"on_event must be a function of one argument, got {on_event!r:.80}")
    for name, function, returned in (("clock", clock, "seconds since 1970"), ("draw", draw, "a number from [0, 1)")):
        fail_if(not callable(function), f"{name} must be a function that returns {returned}, got {function!r:.80}")
    if tls is not None:
        from ssl import SSLContext

        fail_if(not isinstance(tls, SSLContext), f"tls must be an ssl.SSLContext, got {tls!r:.80}")


def _check_throttle(throttle: object, policy: Policy | None, retry_budget: int | None) -> None:
    """Raise `ConfigurationError` unless this is a throttle, and given without options of its own."""
    if not isinstance(throttle, Throttle):
        raise ConfigurationError(f"throttle must be a Throttle or a SharedThrottle, got {throttle!r:.80}")
    fail_if(
        policy not in (None, throttle.policy) or retry_budget != RETRY_BUDGET,
        "policy and retry_budget belong to the throttle; pass them to that",
    )


def check_courtesy(courtesy: object) -> Courtesy:
    """Return `courtesy`; raises `ConfigurationError` if it is something else."""
    if not isinstance(courtesy, Courtesy):
        raise ConfigurationError(f"expected a Courtesy, such as Courtesy('ExampleBot'), got {courtesy!r:.80}")
    return courtesy


def _fetch(request: AdviceRequest, *, tls: "SSLContext | None") -> AdviceResponse:
    """Fetch with headgate's own client, which is imported when it is needed."""
    from headgate.fetch.fetcher import fetch_advice

    return fetch_advice(request, tls=tls)
