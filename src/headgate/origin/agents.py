"""Which agent sent a request: verifies Web Bot Auth signatures with the keys that agents publish.

`AgentVerifier.agent_of` returns at once. An agent whose keys are not known is anonymous until a thread has fetched
them; a failed fetch changes nothing, and stale keys are used for a day. Verified signatures are cached until they
expire. A request is charged to the address of its client before any work, and refunded if it is verified: so invalid
signatures of a client cost little more than requests without one, and they never enter a cache.

One verifier may be called by several threads.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from typing import Final

import msgspec

from headgate.advice.cache import Fetch, WellKnownCache
from headgate.advice.fetching import NETWORK_ERROR, AdviceRequest, AdviceResponse, Interpretation
from headgate.advice.freshness import retry_release
from headgate.advice.parser import UNREACHABLE
from headgate.errors import FetchError, fail_if
from headgate.fetch.destinations import AddressRules, parse_network
from headgate.fetch.fetcher import fetch_advice, tls_context
from headgate.fetch.pace import USER_AGENT
from headgate.http.fields import lines_of
from headgate.identity import AgentUrl, Claim, KeyDirectory, SignedMessage, parse_directory, read_claims
from headgate.identity.directory import MAX_FRESHNESS, MEDIA_TYPE, MIN_FRESHNESS, InvalidDirectory
from headgate.identity.message import normal_authority
from headgate.origin.request_info import RequestInfo
from headgate.release import ASAP

MAX_DIRECTORIES: Final = 1_000
MAX_CACHED: Final = 4_096
"""Verified signatures that are cached."""
MAX_CACHED_SIZE: Final = 2_048
"""Bytes of the fields of a request whose verified signature is cached."""
MAX_FETCHES: Final = 5
"""Directories that are fetched at once, one less of new ones: those that never answer keep no known one waiting."""
MAX_CLIENTS: Final = 16_384
MAX_NONCES: Final = 262_144
"""Nonces that are remembered, with `single_use`, and as many more of agents that routes name."""

_EXPIRED_AT_ONCE: Final = 64
_UNKNOWN: Final = KeyDirectory({}, ASAP)
_LOG_INTERVAL: Final = 10.0
"""Seconds between two lines about directories that cannot be fetched."""
_FIELDS: Final = frozenset({b"signature", b"signature-input", b"signature-agent"})

SignatureKey = tuple[bytes, ...]
"""The host of a request, and the lines of its fields about signatures."""
FetchKeys = Callable[[AdviceRequest], AdviceResponse]
"""Sends a request and returns the response; raises `FetchError`. Called by a thread."""


class _Budget:
    """Token buckets by client, of at most `MAX_CLIENTS`."""

    def __init__(self, burst: float, per_second: float) -> None:
        self._burst, self._rate = burst, per_second
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, client: Hashable, now: float) -> bool:
        """Take a token of a client; return False without one."""
        level, since = self._levels.pop(client, (self._burst, now))
        level = min(self._burst, level + max(0.0, now - since) * self._rate)
        self._levels[client] = (level - 1 if level >= 1 else level), now
        if len(self._levels) > MAX_CLIENTS:
            self._levels.popitem(last=False)
        return level >= 1

    def refund(self, client: Hashable) -> None:
        """Return a token that was taken."""
        level, since = self._levels[client]
        self._levels[client] = level + 1, since


class AgentVerifier:
    """Finds the verified agent of a request.

    `authorities` are the hosts, with their ports unless 443, at which the site is reached: a signature for another
    authority is not accepted, or else a site that an agent visits could send its signature here. `fetch_keys` fetches
    a directory. With `single_use`, a signature needs a nonce, and is accepted once. Raises `ConfigurationError` without
    authorities.
    """

    def __init__(
        self,
        authorities: Iterable[str],
        *,
        fetch_keys: FetchKeys | None = None,
        single_use: bool = False,
        clock: Callable[[], float] = time.time,
        log: Callable[[str], None] = lambda _message: None,
    ) -> None:
        self._authorities = frozenset(normal_authority(each) for each in authorities)
        fail_if(not self._authorities, "web_bot_auth.authorities: expected the hosts of the site, as in Host")
        self._fetch_keys = fetch_keys or directory_fetcher()
        self._clock, self._log, self._log_at = clock, log, 0.0
        self._single_use = single_use
        self.named: frozenset[str] = frozenset()
        """URLs of the keys of agents that routes name: requests of others do not delay their fetches or evict them."""
        self._directories: OrderedDict[str, KeyDirectory] = OrderedDict()
        self._verified: OrderedDict[SignatureKey, Claim] = OrderedDict()
        self._nonces: set[int] = set()
        self._nonces_by_expiry: list[tuple[float, int]] = []
        # Of agents that routes name, and of others.
        self._caches = {each: WellKnownCache(_Directories(), most_origins=MAX_DIRECTORIES) for each in (True, False)}
        self._verifications = _Budget(20, 1)
        self._fetches, self._all_fetches = _Budget(5, 0.1), _Budget(20, 2)
        self._running = 0
        self._lock = threading.Lock()

    def cached(self, key: SignatureKey, *, now: float) -> str:
        """Return the agent of a request whose signature was verified; `key` has its host and the lines that sign it."""
        known = self._verified.get(key)
        if known is None or now >= known.expires:
            return ""
        directories = self._directories  # other threads replace it, and never remove from it
        if known.agent.fetch in directories:
            directories.move_to_end(known.agent.fetch)
        return known.agent.identifier

    def agent_of(
        self, info: RequestInfo, client: Callable[[RequestInfo], bytes], *, now: float, key: SignatureKey = ()
    ) -> str:
        """Return the URL that identifies the agent that signed a request; empty if it is not verified.

        `client` returns the address to which the work is charged; `key` is that of `cached`, if it was called.
        """
        if not key:
            given = [b"%b:%b" % field for field in info.fields if field[0] in _FIELDS]
            key = (info.host, *given) if len(given) >= len(_FIELDS) else ()
            if not key or (known := self.cached(key, now=now)):
                return known if key else ""
        with self._lock:
            return self._verify(key, info, client(info), now)

    def _verify(self, key: SignatureKey, info: RequestInfo, client: bytes, now: float) -> str:
        authority = normal_authority(info.host.decode("latin-1"))
        if authority not in self._authorities or not self._verifications.take(client, now):
            return ""
        message = _message(info)
        for claim in read_claims(message, now=now):
            held = self._directories.get(claim.agent.fetch, _UNKNOWN)
            public = held.key(claim.key_id, now=now)
            if public is None or now >= held.fresh_until:
                self._want(claim.agent, client, now)
            if public is not None and claim.is_signed_by(public) and self._is_first_use(claim, now):
                self._verifications.refund(client)
                self._directories.move_to_end(claim.agent.fetch)
                if not self._single_use and not claim.is_narrow and sum(map(len, key)) <= MAX_CACHED_SIZE:
                    # Then its directory is asked for again, and the key may be expired or gone.
                    until = min(claim.expires, public.expires, max(held.fresh_until, now + MIN_FRESHNESS))
                    self._verified[key] = msgspec.structs.replace(claim, expires=until)
                    if len(self._verified) > MAX_CACHED:
                        self._verified.popitem(last=False)
                return claim.agent.identifier
        return ""

    def _is_first_use(self, claim: Claim, now: float) -> bool:
        """Return whether a signature may be used; with `single_use` only once, if its nonce can be remembered."""
        if not self._single_use:
            return True
        for _ in range(_EXPIRED_AT_ONCE):
            if self._nonces_by_expiry and self._nonces_by_expiry[0][0] <= now:
                self._nonces.remove(heappop(self._nonces_by_expiry)[1])
        nonce = hash((claim.agent.identifier, claim.key_id, claim.nonce))
        # None is forgotten for another: then it could be used again.
        most = 2 * MAX_NONCES if claim.agent.fetch in self.named else MAX_NONCES
        if not claim.nonce or nonce in self._nonces or len(self._nonces) >= most:
            return False
        self._nonces.add(nonce)
        heappush(self._nonces_by_expiry, (claim.expires, nonce))
        return True

    def _want(self, agent: AgentUrl, client: bytes, now: float) -> None:
        """Start to fetch the keys of an agent, unless that is due later, or too many are fetched."""
        is_named, is_known = agent.fetch in self.named, agent.fetch in self._directories
        cache = self._caches[is_named]
        answer = cache.ask(agent.fetch, now=now)
        if not isinstance(answer, Fetch):
            return
        may_fetch = is_named or self._running < MAX_FETCHES - (not is_known)
        # What is named or fetched again is bounded by its number.
        if may_fetch and not is_named and not is_known:
            may_fetch = self._fetches.take(client, now) and self._all_fetches.take(b"", now)
        with suppress(RuntimeError):  # the limit of threads is reached
            if may_fetch:
                threading.Thread(
                    target=self._fetch, args=(cache, answer, agent), name="headgate-keys", daemon=True
                ).start()
                self._running += 1
                return
        cache.abandoned(answer, retry_at=now + 1)

    def _fetch(self, cache: WellKnownCache, fetch: Fetch, agent: AgentUrl) -> None:
        try:
            response = self._fetch_keys(fetch.request)
        except (FetchError, RuntimeError) as error:  # also without a second thread
            response = NETWORK_ERROR._replace(failure=str(error))
        now, found, why = self._clock(), None, response.failure or f"status {response.status}"
        if response.status == 200 and not response.failure:
            try:
                found = parse_directory(agent, response.fields, response.body or b"", now=now)
            except InvalidDirectory as error:
                why = str(error)
        with self._lock:
            self._running -= 1
            # Without validators: a directory is small, and each key that was removed must be seen.
            kept = [("retry-after", line) for line in lines_of(response.fields, "retry-after")]
            cache.received(fetch, response._replace(fields=kept), now=now)
            if found is None and (now >= self._log_at or agent.fetch in self.named):
                self._log_at = now + _LOG_INTERVAL
                self._log(f"warning: no keys from {agent.fetch}: {why}; requests of this agent stay anonymous")
            if found is not None:
                self._directories[agent.fetch] = found
                evicted = [url for url in list(self._directories) if url not in self.named][:-MAX_DIRECTORIES]
                self._directories = OrderedDict(
                    (url, keys) for url, keys in list(self._directories.items()) if url not in evicted
                )
                self._verified = OrderedDict(
                    (key, claim)
                    for key, claim in self._verified.items()
                    if claim.agent.fetch != agent.fetch or found.key(claim.key_id, now=now) is not None
                )


def _message(info: RequestInfo) -> SignedMessage:
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in info.fields]
    target = info.path + (b"?" + info.query if info.query else b"")
    return SignedMessage(info.method.decode("latin-1"), info.host.decode("latin-1"), target.decode("latin-1"), fields)


def directory_fetcher(allowed: Iterable[str] = (), ca: str = "") -> FetchKeys:
    """Return what fetches directories from global addresses and `allowed` networks; `ca` replaces the authorities.

    Raises `ConfigurationError` for an invalid network or file.
    """
    rules = AddressRules(map(parse_network, allowed))
    return partial(fetch_advice, tls=tls_context("web_bot_auth.ca", ca), rules=rules)


class _Directories:
    """When directories are fetched again, for `WellKnownCache`: here, what they contain does not matter."""

    kind = "keys"
    min_freshness = MIN_FRESHNESS

    def key(self, url: str) -> str | None:
        """Return the URL itself: a host may have several directories."""
        return url

    def request(self, origin: str) -> AdviceRequest | None:
        """Return the request for a directory."""
        accept = f"{MEDIA_TYPE}, application/jwk-set+json;q=0.9, application/json;q=0.8"
        fields = (("Accept", accept), ("Accept-Encoding", "identity"), ("User-Agent", USER_AGENT))
        return AdviceRequest(origin, fields, any_type=True)

    def interpret(self, response: AdviceResponse) -> Interpretation:
        """Return whether there was a response with status 200."""
        return Interpretation(True if response.status == 200 else UNREACHABLE, "")

    def fresh_for(self, response: AdviceResponse, result: object, *, now: float) -> float:  # noqa: ARG002
        """Return the seconds until it may be fetched again, if that is necessary."""
        release = retry_release(response.fields, now=now)
        return min(max(MIN_FRESHNESS, release - now), MAX_FRESHNESS)
