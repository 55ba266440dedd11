"""The throttle: when may this URL be requested again?

It counts every response and returns release times (anti-ddos-throttling.txt, sections 4 and 5), and an `Explanation` of
each. It knows neither HTTP libraries, sockets nor clocks, and never waits or locks. Instants are seconds since 1970.
"""

import math
import random  # noqa: TID251 - only passed on, as the default of `draw`
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from headgate.errors import check_count, fail_if
from headgate.http.date import retry_after
from headgate.http.url import host_of, is_localhost, resolve
from headgate.release import ASAP, NEVER
from headgate.throttle.fields import Headers, ThrottleFields, parse_fields
from headgate.throttle.policy import Policy
from headgate.throttle.store import ThrottleStore
from headgate.throttle.target import MAX_BUCKET_PATH, MAX_KEPT_URL, Target, kept_target, parse_target, path_matches

GESTURE: Final = 3.5
"""Seconds after a user gesture in which nothing is held (section 4).

The same number applies before it: if the clock is set back, a gesture in the future must not count for years.
"""

UNCOUNTED: Final = frozenset({502, 504})
"""A gateway could not reach the server: not a success, even if the policy does not count it as a failure."""

PATH_FAILURES: Final = frozenset({500, 509})
"""Failures that hold their target, and not the whole origin."""

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_MAX_DECLARED: Final = 4
"""Maximum buckets that one response may declare: each visits all targets of its origin."""

_UNEARNED: Final = UNCOUNTED | {429}
"""Statuses that are not failures, and do not earn a retry."""

RETRY_BUDGET: Final = 10
"""The default number of retries of an origin that has not succeeded yet."""

_SHARES: Final = 10
"""Shares per token of a retry budget; a success earns one. Integers, because ten times 0.1 is not 1.0."""

ThrottleReason: TypeAlias = Literal[
    "advice_disallowed",
    "advice_fraction",
    "advice_unreachable",
    "robots_disallowed",
    "robots_unreachable",
    "free",
    "backoff",
    "retry-after",
    "rate-limit",
    "pace",
    "shared",
    "opted out",
    "localhost",
    "user gesture",
    "no target",
]
"""Why a URL is held ("backoff", "retry-after", "rate-limit", "pace", "shared") or free."""


HELD: Final = frozenset({"backoff", "retry-after", "rate-limit", "shared"})
"""The reasons for which a URL is held."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request may be sent or not, as a value for programs and, by `str`, as text for people."""

    url: str
    now: float
    target: str | None = None
    """The throttling target, its bucket with `*` at the end, or its origin; None if `url` is not http or https."""
    bucket: str | None = None
    """The path of the bucket; None without one."""
    failures: int = 0
    """The failure count of the target or bucket."""
    backoff: float = ASAP
    """The end of the backoff; `ASAP` without one, and for a host that opted out."""
    retry_after: float = ASAP
    """The end of the `Retry-After`."""
    held: bool = False
    """Whether a request sent now would be held."""
    reason: ThrottleReason = "free"
    """Why the URL is held or free."""

    @property
    def release(self) -> float:
        """The later of both ends: when the target is released, unless an exception lets a request through before."""
        return max(self.backoff, self.retry_after)

    def __str__(self) -> str:
        what = self.url if self.target is None else self.target
        return f"{what}: {'held' if self.held else 'free'}, {_REASON_TEXTS[self.reason].format(*self._words())}"

    def _words(self) -> tuple[str, str]:
        times = "one failure" if self.failures == 1 else f"{self.failures or 'no'} failures"
        left = "for good" if self.release == NEVER else f"for {self.release - self.now:.3f} s more"
        return left, times


_REASON_TEXTS: dict[ThrottleReason, str] = {
    "free": "not held, after {1}",
    "advice_disallowed": "{0}: its traffic advice disallows all traffic",
    "advice_fraction": "{0}: its traffic advice admits a fraction without this request",
    "robots_disallowed": "{0}: its robots.txt disallows the URL",
    "robots_unreachable": "{0}: its robots.txt cannot be fetched",
    "advice_unreachable": "{0}: the Retry-After of its traffic advice",
    "backoff": "{0}: the backoff after {1}",
    "retry-after": "{0}: its Retry-After",
    "pace": "{0}: the pace of this agent",
    "rate-limit": "{0}: nothing remains of its rate limit",
    "shared": "{0}: a hold that another process shares",
    "opted out": "its host opted out of throttling",
    "localhost": "this machine is never held",
    "user gesture": "a user has just clicked or typed; otherwise held {0}",
    "no target": "not an http or https URL",
}


class Throttle:
    """Backs off from origins and targets that fail, as its policy says, and obeys `Retry-After`, RateLimit fields,
    `Exponential-Throttling` and `DDoS-Bucket-With`.

    `draw` returns numbers from [0, 1) for the jitter. Only buckets and targets that failed or are held are stored, at
    most `max_targets`, and at most `max_opt_outs` hosts that opted out; `evicted` and `opt_outs_evicted` count what was
    dropped to make room. Requests to this machine are never held unless `hold_localhost`.

    An origin gets `retry_budget` retries, None for any number, and a tenth of one for each success: see `spend_retry`.
    Parallel requests that fail together count once: a failure whose request was `sent` before the last failure was
    counted does not count again. A throttle is not thread-safe: threads that share one have to lock it.
    """

    def __init__(
        self,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        *,
        draw: Callable[[], float] = random.random,
        max_targets: int = 100_000,
        max_opt_outs: int = 10_000,
        hold_localhost: bool = False,
        retry_budget: int | None = RETRY_BUDGET,
    ) -> None:
        Policy.check(policy)
        check_count("max_opt_outs", max_opt_outs, 1)
        fail_if(
            retry_budget is not None and (type(retry_budget) is not int or retry_budget < 0),
            f"retry_budget must be a non-negative number of retries, got {retry_budget!r}",
        )
        self.policy = policy
        """The backoff policy in force."""
        self.draw = draw
        """The source of random numbers."""
        self.opt_outs_evicted = 0
        """Opt-outs dropped to make room."""
        self._hold_localhost = hold_localhost
        self._gesture = ASAP
        self._store = ThrottleStore(policy, max_targets=max_targets)
        self._max_opt_outs = max_opt_outs
        self._opt_outs: dict[str, None] = {}
        self._full_budget = None if retry_budget is None else retry_budget * _SHARES
        self._max_budgets = max_targets
        self._budgets: dict[str, tuple[int, float]] = {}
        """The shares left of each origin whose budget is not full, and when the last retry was taken."""

    def __bool__(self) -> bool:
        """A throttle is true, also without targets."""
        return True

    def __len__(self) -> int:
        """Return the number of stored targets and buckets."""
        return self._store.size

    @property
    def evicted(self) -> int:
        """Holds dropped to make room."""
        return self._store.evicted

    def target(self, url: str) -> Target | None:
        """Return the throttling target of an absolute URL; None for a URL without one, which is never held.

        Other methods take it instead of the URL, which saves parsing the URL again.
        """
        parse = kept_target if len(url) <= MAX_KEPT_URL else parse_target
        return parse(url, lower_case_path=self.policy.lower_case_path)

    def release_time(self, url: str | Target, *, now: float, interactive: bool = False) -> float:
        """Return the instant before which `url` must not be requested; `ASAP` if it may be requested now.

        A request is held if and only if that instant is later than `now`. With `interactive` this request is permitted
        as after a user gesture. This method changes nothing.
        """
        target = url if isinstance(url, Target) else self.target(url)
        entries = () if target is None else self._store.holding(target, now=now)
        if target is None or not entries or interactive or self._is_after_gesture(now):
            return ASAP
        opted_out, latest = self._has_opted_out(target), now
        for entry in entries:
            release = entry.retry_after if opted_out else entry.release
            latest = max(latest, release)
        return latest if latest > now else ASAP

    def response_received(
        self,
        url: str | Target,
        status: int,
        headers: Headers,
        *,
        now: float,
        sent: float | None = None,
        method: str = "GET",
    ) -> ThrottleFields | None:
        """Count the response to a request for `url`, which was sent at `sent` and received at `now`.

        `headers` is a mapping or pairs of text or bytes, names in any case. Returns the fields that matter.
        """
        fields = parse_fields(headers, now=now)
        target = url if isinstance(url, Target) else self.target(url)
        if target is None:
            return fields
        is_failure = status in self.policy.failure_statuses
        if self._budgets and not is_failure and status not in _UNEARNED:
            self._earn_retry(target)
        self._store.examine_next(now)
        if (is_failure or fields is not None) and self._is_exempt(target):
            return fields
        if fields is not None:
            self._obey(target, fields, now)
            self._delay(target, self._delayed(target, status, method, fields), fields, now)
        if is_failure:
            self._fail(target, now, sent, wide=self._holds_origin and status not in PATH_FAILURES)
        elif status not in UNCOUNTED:
            for entry in self._store.holding(target, now=now):
                entry.succeed(now)
                if entry.count < 0 and not entry.is_bucket and entry.release <= now:
                    self._store.drop(entry)  # a target that is healthy and not held
        return fields

    def request_lost(self, url: str | Target, *, now: float, sent: float | None = None) -> None:
        """Count a request for `url`, sent at `sent`, that failed at `now` without a response.

        No connection was made, or it broke. Failures of this machine are not reported.
        """
        target = self._target(url)
        if target is not None and self._holds_origin and not self._is_exempt(target):
            self._fail(target, now, sent, wide=True)

    def clear(self, url: str) -> None:
        """Drop all that is known of the origin of `url`: failures, holds, buckets and used retry budget."""
        target = self.target(url)
        if target is not None:
            self._store.drop_origin(target.origin)
            self._budgets.pop(target.origin, None)

    def malformed_body(self, url: str, status: int, *, now: float) -> None:
        """Record that the body of a counted response proved malformed.

        A success then counts as a failure: the count is one more than before the response. With any other status
        nothing changes.
        """
        target = self.target(url)
        if target is None or self._is_exempt(target) or self._has_opted_out(target):
            return
        if status not in self.policy.failure_statuses and status not in UNCOUNTED:
            entry = self._store.found_or_new(target, now=now)
            entry.count += 1  # without the success that was just counted
            entry.fail(now, self.policy, self.draw())

    def user_gesture(self, *, now: float) -> None:
        """Record that the user has just clicked or typed: nothing is held for the next 3.5 seconds."""
        if not 0 <= self._gesture - now < GESTURE:  # keeps a later gesture
            self._gesture = now

    def reset(self) -> None:
        """Drop targets, buckets and used retry budgets, but not the opt-outs; for a change of the network."""
        self._store.reset()
        self._budgets.clear()

    def forget(self, *, now: float) -> int:
        """Drop entries that cannot affect a request any more; return their number."""
        return self._store.forget(now=now)

    def retries_left(self, url: str) -> float:
        """Return the retries left for the origin of `url`; infinity without a budget."""
        target = self.target(url)
        if target is None or self._full_budget is None:
            return math.inf
        return self._budgets.get(target.origin, (self._full_budget, ASAP))[0] // _SHARES

    def spend_retry(self, url: str, *, now: float = ASAP, sent: float | None = None) -> bool:
        """Take one retry of `url` from its origin's budget; return False, and do not retry, if none is left.

        A request that was `sent` before the last retry was taken belongs to the same burst, and its retry is free.
        """
        target = self.target(url)
        if target is None or self._full_budget is None:
            return True
        left, spent = self._budgets.get(target.origin, (self._full_budget, ASAP))
        if sent is not None and sent < spent <= now:
            return True
        if left < _SHARES:
            return False
        _drop_oldest_if_full(self._budgets, target.origin, self._max_budgets)
        self._budgets[target.origin] = left - _SHARES, now
        return True

    def explain(self, url: str, *, now: float) -> Explanation:
        """Return why `url` is held or free at `now`."""
        target = self.target(url)
        if target is None:
            return Explanation(url=url, now=now, reason="no target")
        name = target.name
        if self._is_exempt(target):
            return Explanation(url=url, now=now, target=name, reason="localhost")
        opted_out = self._has_opted_out(target)
        entries = self._store.holding(target, now=now)
        entry = max(entries, key=lambda each: each.retry_after if opted_out else each.release, default=None)
        if entry is None:
            return Explanation(url=url, now=now, target=name, reason="opted out" if opted_out else "free")
        bucket = entry.path if entry.is_bucket else None
        backoff = ASAP if opted_out else entry.backoff
        reason: ThrottleReason = "opted out" if opted_out else "free"
        if max(backoff, entry.retry_after) > now:
            reason = cast("ThrottleReason", entry.cause) if entry.retry_after >= backoff else "backoff"
            if self._is_after_gesture(now):
                reason = "user gesture"
        return Explanation(
            url=url,
            now=now,
            target=f"{entry.origin}{entry.path}*" if entry.is_bucket else entry.origin + entry.path,
            bucket=bucket,
            failures=0 if opted_out else entry.failures,
            backoff=backoff,
            retry_after=entry.retry_after,
            held=reason in HELD,
            reason=reason,
        )

    @property
    def _holds_origin(self) -> bool:
        return self.policy.scope == "origin"

    def _fail(self, target: Target, now: float, sent: float | None, *, wide: bool) -> None:
        """Count a failure, unless its request was sent before the last one was counted."""
        if self._has_opted_out(target):
            return
        entry = self._store.found_or_new(target, now=now, wide=wide)
        if sent is None or sent >= entry.failed:
            entry.failed = now
            entry.fail(now, self.policy, self.draw())

    def _delayed(self, target: Target, status: int, method: str, fields: ThrottleFields) -> Target | None:
        """Return the target that a Retry-After is for; None for the whole origin (RFC 9110, section 10.2.3)."""
        if not self._holds_origin:
            return target
        if status not in REDIRECTS and (status, method) != (202, "POST"):
            return None
        location = self.target(resolve(fields.location, target.name) or "") if fields.location else None
        # No server may hold URLs of another.
        return location if location is not None and location.origin == target.origin else target

    def _delay(self, target: Target, delayed: Target | None, fields: ThrottleFields, now: float) -> None:
        """Hold for a Retry-After, and until the reset of a limit of which nothing remains."""
        latest = now + self.policy.max_retry_after
        asked = max((retry_after(value, now=now) for value in fields.retry_after), default=ASAP)
        resets = [now + seconds for remaining, seconds in fields.rate_limits if not remaining]
        if asked > now:
            entry = self._store.found_or_new(delayed or target, now=now, wide=delayed is None)
            entry.hold_until(ASAP, min(asked, latest), now)
        if self._holds_origin and resets and max(resets) > now:
            entry = self._store.found_or_new(target, now=now, wide=True)
            entry.hold_until(ASAP, min(max(resets), latest), now, "rate-limit")

    def _target(self, url: str | Target) -> Target | None:
        return url if isinstance(url, Target) else self.target(url)

    def _earn_retry(self, target: Target) -> None:
        if target.origin in self._budgets and self._full_budget is not None:
            left, spent = self._budgets[target.origin]
            self._budgets[target.origin] = left + 1, spent
            if left + 1 >= self._full_budget:
                del self._budgets[target.origin]

    def _is_after_gesture(self, now: float) -> bool:
        return abs(now - self._gesture) < GESTURE

    def _is_exempt(self, target: Target) -> bool:
        # "Requests to localhost are never blocked."
        return not self._hold_localhost and is_localhost(host_of(target.origin))

    def _has_opted_out(self, target: Target) -> bool:
        return bool(self._opt_outs) and host_of(target.origin) in self._opt_outs

    def _obey(self, target: Target, fields: ThrottleFields, now: float) -> None:
        """Obey an opt-out and declared buckets, which affect how the response itself is counted."""
        if fields.opts_out and not self._has_opted_out(target):
            host = host_of(target.origin)
            self.opt_outs_evicted += _drop_oldest_if_full(self._opt_outs, host, self._max_opt_outs)
            self._opt_outs[host] = None
        for value in fields.buckets[:_MAX_DECLARED]:
            path = value.lower() if self.policy.lower_case_path else value
            # section 4: the current response is a match for the path that it declares
            if path.startswith("/") and path_matches(path, target.path) and len(path) <= MAX_BUCKET_PATH:
                self._store.declare(target, path, now=now)


def _drop_oldest_if_full(entries: dict[str, Any], name: str, limit: int) -> bool:
    """Drop the oldest of `limit` entries to make room for `name`; return whether one was dropped."""
    is_full = name not in entries and len(entries) >= limit
    if is_full:
        del entries[next(iter(entries))]
    return is_full
