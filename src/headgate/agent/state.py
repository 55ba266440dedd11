"""What all requests of one `Courtesy` share: its settings, its throttle behind a lock, and the traffic advice.

This file knows nothing of HTTP libraries, and nothing of the order in which a request asks for what is in here.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from headgate.advice import AdviceCache, AgentIdentity, WellKnownCache
from headgate.advice.cache import REPORT_TIMEOUT
from headgate.advice.decision import Advice, derived_draw
from headgate.advice.freshness import MIN_FRESHNESS
from headgate.agent.advice_client import AdviceClient, PendingAdvice, SharedResponses, StartFetch
from headgate.agent.fork_hooks import FORK_HOOKS
from headgate.agent.retry import Retry
from headgate.http.url import serialised_origin
from headgate.release import ASAP
from headgate.throttle import Explanation, Throttle
from headgate.throttle.fields import Headers
from headgate.throttle.throttle import ThrottleReason

if TYPE_CHECKING:  # imported when there is a pace
    from headgate.agent.pace import Concurrency, Pace
    from headgate.agent.signature import AgentSigner

EventKind: TypeAlias = Literal["sent", "answered", "lost", "waits", "held", "retried", "advice"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a request, as plain data; fields that do not belong to its kind have their defaults.

    * "sent", "answered", "lost": a request is sent, its response's head has come, or none came.
    * "waits": it is held, and waits `delay` seconds. "held": it is held and not sent, and `RetryLater` is raised; a
      retry results in the response before it. A request that waits while its traffic advice is fetched is not held; it
      is if the fetch takes too long.
    * "retried": after an answer with `status`, or 0 for none, it is sent again in `delay` seconds, as retry `number`.
    * "advice": the traffic advice of the origin `url` was fetched; `reason` describes the result.
    """

    kind: EventKind
    url: str
    now: float
    """Seconds since 1970."""
    method: str = ""
    status: int = 0
    """The status of the response; 0 without one."""
    number: int = 0
    """1 for the first retry of a request."""
    reason: str = ""
    """As in `RetryLater`: "backoff", "retry-after", "advice_…" and so on."""
    target: str = ""
    """What is held: a throttling target, a bucket with `*` behind its path, or an origin."""
    release_time: float = ASAP
    """When the request may go at the earliest."""
    delay: float = 0.0
    """Seconds that the request waits now."""
    headers: Headers = ()
    """The fields of an answer, as the HTTP library has them."""
    advice: Advice | None = None
    """The advice that was fetched."""

    def __str__(self) -> str:
        return _TEXTS[self.kind].format(self)


_TEXTS: Final[dict[EventKind, str]] = {
    "sent": "{0.method} {0.url}",
    "answered": "{0.method} {0.url}: {0.status}",
    "lost": "{0.method} {0.url}: no response",
    "waits": "{0.url} waits {0.delay:.1f} s: {0.reason} of {0.target}",
    "held": "{0.url} is not sent: {0.reason} of {0.target}",
    "retried": "retry {0.number} of {0.url} after status {0.status} in {0.delay:.1f} s",
    "advice": "{0.url}: {0.reason}",
}
_NOTABLE: Final = frozenset({"waits", "held", "retried"})
"""Logged at INFO; others at DEBUG."""

_WAIT_OF_RETRIES: Final = 5.0
"""Seconds: the default of `wait` with `retry`. A retry always waits, so with 0 there would be none."""
_UNLIMITED: Final = 1e9
"""Seconds that a request waits with `wait=True`: finite, so that it does not wait for `NEVER`."""
_LONGEST_SPREAD: Final = 60.0
"""Seconds between two requests at most by RateLimit fields, for requests that do not wait for holds."""
_RETRIES_OF_WAIT: Final = 3
"""The default of `retry` with `wait=True`: what a server rejects is not lost."""

_DEFAULT_AGENTS: Final = ("python-httpx", "python-requests/", "niquests/", "Python-urllib/", "Python/", "Scrapy/")
"""What libraries send as their User-Agent unless the program sets one."""

_logger = logging.getLogger("headgate.agent")


class Holder(NamedTuple):
    """One reason to hold a request; the greatest of several is the one that holds it longest."""

    release_time: float
    reason: str
    target: str


def _retry_of(retry: int | Retry | None, wait: float | None) -> Retry:
    if isinstance(retry, Retry):
        return retry
    return Retry((_RETRIES_OF_WAIT if wait is True else 0) if retry is None else retry)


def _new_pace(rate: str | None, concurrency: "Concurrency | None", longest_spread: float) -> "Pace":
    from headgate.agent.pace import Pace

    return Pace(rate, concurrency, longest_spread)


def _robots_cache(agent: str) -> WellKnownCache:
    from headgate.agent.robots import RobotsResource

    return WellKnownCache(RobotsResource(agent))


def advice_holder(advice: Advice, draw: float) -> Holder:
    """Return why and until when an advice holds a request with this draw; until `ASAP` if it does not."""
    release = advice.release_time(draw)
    reason = "advice_unreachable"
    if advice.entry is not None and release >= advice.fresh_until:
        reason = "advice_disallowed" if advice.entry.disallowed else "advice_fraction"
    return Holder(release, reason, advice.origin)


class CourtesyState:
    """What the requests of one courtesy share, for any number of threads and event loops.

    The arguments are those of `Courtesy`. `start_fetch` starts the advice fetches of requests without an HTTP client.
    Raises `ConfigurationError` for a number that is out of range.
    """

    is_closed = False
    answered = 0
    """Answered requests; counted apart from other events, since nearly all are."""
    pass_time: Callable[[float], None] | None = None
    """Called with the seconds of a wait in its place, in tests."""

    def __init__(
        self,
        throttle: Throttle,
        identity: AgentIdentity | None,
        *,
        user_agent: str = "",
        signer: "AgentSigner | None" = None,
        wait: bool | float | None = None,
        retry: int | Retry | None = None,
        robots: bool = False,
        rate: str | None = None,
        concurrency: "Concurrency | None" = None,
        min_freshness: float = MIN_FRESHNESS,
        on_event: Callable[[Event], object] | None = None,
        start_fetch: StartFetch,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self.throttle = throttle
        """The throttle; used by one thread at a time, which holds `lock`."""
        self.lock = threading.Lock()
        self.clock = clock
        self.user_agent = user_agent.encode("utf-8", "replace").decode("latin-1")  # field values are bytes
        self.signer = signer
        """Signs the requests of an agent with a key."""
        self.adds_fields = bool(user_agent) or signer is not None
        """Whether `own_fields` may return any."""
        self.secret = repr(draw()).encode()
        """What the draws of requests are derived from."""
        self.retry = retry = _retry_of(retry, wait)
        """Which requests are sent again."""
        default = _WAIT_OF_RETRIES if retry.attempts else 0.0
        self.max_delay = default if wait is None else _UNLIMITED if wait is True else float(wait)
        """Seconds that a held request may wait at most."""
        self.max_advice_delay = REPORT_TIMEOUT if wait is None or wait is True else float(wait)
        """Seconds that a request may wait at most until its origin's advice is known."""
        self.pace: Pace | None = None
        """What spreads the requests to each origin; None without a rate, a concurrency, robots.txt and a wait."""
        has_pace = rate is not None or concurrency is not None or robots
        if has_pace or self.max_delay:
            self.pace = _new_pace(rate, concurrency, self.max_delay or _LONGEST_SPREAD)
        self.max_pace_delay = _UNLIMITED if wait is None and has_pace else self.max_delay
        """Seconds that a request may wait at most for its turn."""
        client = partial(
            AdviceClient,
            clock=clock,
            own_fields=self.own_fields,
            is_asked_to_sign=self.is_asked_to_sign,
            default=start_fetch,
            shared=throttle if isinstance(throttle, SharedResponses) else None,
        )
        self.sources: list[AdviceClient] = []
        """What fetches the well-known resources that requests obey: traffic advice and robots.txt."""
        if identity is not None:
            self.sources.append(client(AdviceCache(identity, min_freshness=min_freshness), on_advice=self._on_advice))
        if robots:
            cache = _robots_cache("*" if identity is None else identity.brand)
            self.sources.append(client(cache, on_advice=self._on_robots))
        self.counters: Counter[str] = Counter()
        """The number of events of each kind but "sent" and "answered"."""
        self.tells_all = on_event is not None
        """Whether "sent" and "answered" are told; asked first, since these are two events for each request."""
        self._on_event = on_event
        FORK_HOOKS.register(self)

    def own_fields(self, _method: str, url: str, user_agent: str | None = None) -> dict[str, str]:
        """Return the fields that the agent itself sets in a request just before it is sent, for every sending.

        They replace fields of the same name. `user_agent` is what the request has so far; that of a program stays.
        """
        is_set = bool(user_agent) and not str(user_agent).startswith(_DEFAULT_AGENTS)
        fields = {} if is_set or not self.user_agent else {"User-Agent": self.user_agent}
        return fields if self.signer is None else {**fields, **self.signer.fields(url, now=self.clock())}

    def is_asked_to_sign(self, url: str, status: int, headers: Headers) -> bool:
        """Return whether a response asks for a signature that a request may be repeated with."""
        with self.lock:
            return self.signer is not None and self.signer.is_asked(url, status, headers)

    def explain(self, url: str, *, now: float | None = None) -> Explanation:
        """Return what the throttle knows of a URL."""
        with self.lock:
            return self.throttle.explain(url, now=self.clock() if now is None else now)

    def explain_all(self, url: str) -> Explanation:
        """Return the same; if the throttle does not hold a GET of a URL, what known advice and the pace say."""
        found, now = self.explain(url), self.clock()
        origin = serialised_origin(url) or ""
        holders = [self.holder(each, "GET", url) for each in self.known(origin, now=now)]
        if self.pace is not None and origin:
            with self.lock:
                holders.append(Holder(self.pace.of(origin).release(now=now), "pace", origin))
        release, reason, _ = max(holders, default=Holder(ASAP, "", ""))
        if found.held or release <= now or not isinstance(found.target, str):
            return found
        return msgspec.structs.replace(
            found, target=origin, retry_after=release, held=True, reason=cast("ThrottleReason", reason)
        )

    def draw(self, advice: Advice, method: str, url: str) -> float:
        """Return the one draw of a request, however often a program repeats it, while the advice is fresh."""
        if advice.entry is None or not 0 < advice.entry.fraction < 1:
            return 1.0
        request = f"{method} {url}".encode("utf-8", "surrogatepass")
        return derived_draw(self.secret, request, repr(advice.fresh_until).encode())

    def known(self, origin: str, *, now: float) -> list[Advice]:
        """Return what is known of the advice and the robots.txt of an origin, without a fetch."""
        return [known for source in self.sources if (known := source.known(origin, now=now)) is not None]

    def ask(
        self, origin: str, *, is_held: bool, now: float, start: StartFetch | None = None
    ) -> Sequence[Advice | PendingAdvice]:
        """Return what each source says of an origin, or what to wait for until it is known.

        For a request that the throttle holds, nothing is fetched.
        """
        if is_held or not origin:
            return self.known(origin, now=now)
        return [source.ask(origin, now=now, start=start) for source in self.sources]

    def holder(self, advice: Advice, method: str, url: str, draw: float | None = None) -> Holder:
        """Return why and until when advice or robots.txt holds a request; until `ASAP` if it does not."""
        if advice.kind != "advice":
            from headgate.agent.robots import robots_hold

            return Holder(*robots_hold(advice, url), advice.origin)
        return advice_holder(advice, self.draw(advice, method, url) if draw is None else draw)

    def report(self, kind: EventKind, url: str, **details: Any) -> None:
        """Count and log an event, and call the hook; its errors are logged, and the request goes on."""
        with self.lock:
            self.counters[kind] += 1
        self.tell(kind, url, **details)

    def tell(self, kind: EventKind, url: str, **details: Any) -> None:
        """Log an event that is counted, and call the hook."""
        level = logging.INFO if kind in _NOTABLE else logging.DEBUG
        if self._on_event is None and not _logger.isEnabledFor(level):
            return
        event = Event(kind=kind, url=url, **{"now": self.clock(), **details})
        _logger.log(level, "%s", event)
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception:
                _logger.exception("the hook %r failed", self._on_event)

    @contextmanager
    def scripted(self, clock: Callable[[], float], pass_time: Callable[[float], None]) -> Iterator[None]:
        """Use another clock, call `pass_time` in place of waits, and fetch nothing."""
        saved = self.clock, self.sources
        self.clock, self.sources, self.pass_time = clock, [], pass_time
        try:
            yield
        finally:
            self.clock, self.sources, self.pass_time = *saved, None

    def close(self) -> None:
        """Fetch no more advice; requests that wait for some raise `RuntimeError`."""
        self.is_closed = True
        for source in self.sources:
            source.close()

    def _on_advice(self, advice: Advice) -> None:
        self.report("advice", advice.origin, reason=advice.reason, release_time=advice.fresh_until, advice=advice)

    def _on_robots(self, known: Advice) -> None:
        from headgate.agent.robots import rules_of

        rules = rules_of(known)
        if self.pace is not None and rules is not None:
            with self.lock:
                self.pace.of(known.origin).delay = rules.delay
        self._on_advice(known)

    def before_fork(self) -> None:
        """Keep all threads out of the throttle and the advice while the process is forked."""
        self.lock.acquire()
        for source in self.sources:
            source.before_fork()

    def after_fork(self, *, is_child: bool) -> None:
        """Go on after a fork; the parent's threads do not exist in the child."""
        for source in self.sources:
            source.after_fork(is_child=is_child)
        if is_child:  # also of a fork that Python did not make, before which nothing was locked
            self.lock = threading.Lock()
            if self.pace is not None:
                self.pace.reset()  # the requests are the parent's
        else:
            self.lock.release()
