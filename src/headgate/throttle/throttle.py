"""The throttle: when may this URL be asked again?

This file knows nothing of HTTP libraries, sockets or clocks, and nothing in it waits or locks: it is told of every
response and gives release times (anti-ddos-throttling.txt, sections 4 and 5). Instants are seconds since 1970.
"""

import math
import random
from collections.abc import Callable
from typing import Final

from headgate.errors import ConfigurationError
from headgate.http.origin import host_of, is_localhost, serialised_origin
from headgate.http.retry_after import retry_after
from headgate.release import ASAP, advance
from headgate.throttle.budget import RetryBudget
from headgate.throttle.entry import Entry
from headgate.throttle.explanation import Explanation, Reason
from headgate.throttle.fields import Fields, Headers, Words
from headgate.throttle.policy import Policy
from headgate.throttle.store import Store
from headgate.throttle.target import Target, parse_target, path_matches

__all__ = ["GESTURE", "UNCOUNTED", "Throttle"]

GESTURE: Final = 3.5
"""Seconds after a user gesture in which nothing is held (section 4).

Nor in so many before it, and no more: by a clock that was set back, a gesture would else be to come for years.
"""

_SPREAD: Final = 10.0
"""Seconds over which requests come back when a backoff is cleared."""

UNCOUNTED: Final = frozenset({502, 504})
"""Somebody on the way could not reach the server: neither a failure of its nor a success."""

_MAX_DECLARED: Final = 4
"""Buckets that one response may declare. Each one looks through all targets of its origin."""

_UNEARNED: Final = UNCOUNTED | {429}
"""What is no failure, and earns no retry either."""


class Throttle:
    """Backs off from throttling targets that fail, and obeys `Retry-After`, `Exponential-Throttling` and
    `DDoS-Bucket-With`.

    `draw` gives numbers from [0, 1) for the jitter. Only targets that fail or are held, and buckets, are stored, at
    most `max_targets` of them, and at most `max_opt_outs` hosts that opted out; what had to go for want of room is
    counted in `evicted` and `opt_outs_evicted`. Requests to this machine are never held unless `hold_localhost`.

    With `retry_budget`, an origin may be sent so many retries, and a tenth of one more for each success: see
    `spend_retry`. With `coalesce`, a failure whose request was `sent` before the last failure was counted does not
    count again: requests in parallel are one failure, not as many as there were.

    For one thread at a time: where several share a throttle, whoever shares it locks.
    """

    def __init__(
        self,
        policy: Policy = Policy(),  # noqa: B008 - frozen
        *,
        draw: Callable[[], float] = random.random,
        max_targets: int = 100_000,
        max_opt_outs: int = 10_000,
        hold_localhost: bool = False,
        retry_budget: int | None = None,
        coalesce: bool = False,
    ) -> None:
        for name, most in (("max_targets", max_targets), ("max_opt_outs", max_opt_outs)):
            if most < 1:
                raise ConfigurationError(f"{name}: {most!r} leaves no room; try 10000")
        self.policy = policy
        """The backoff policy in force."""
        self.draw = draw
        """The chance of every jitter."""
        self.opt_outs_evicted = 0
        """Hosts whose opting out was forgotten for want of room."""
        self._hold_localhost = hold_localhost
        self._coalesce = coalesce
        self._failures = policy.failure_statuses
        self._words = Fields().words
        self._latest: tuple[str, Target | None] = "", None
        self._gesture = ASAP
        self._opt_outs: dict[str, None] = {}
        self._max_opt_outs = max_opt_outs
        self._budget = None if retry_budget is None else RetryBudget(retry_budget, most=max_targets)
        self._store = Store(
            most=max_targets, failing_lifetime=policy.failing_lifetime, healthy_lifetime=policy.entry_lifetime
        )

    def __len__(self) -> int:
        """How many targets and buckets are stored."""
        return self._store.size

    @property
    def evicted(self) -> int:
        """Live holds dropped for want of room."""
        return self._store.evicted

    @property
    def clock_steps(self) -> int:
        """Targets and buckets whose holds were moved back in time with a clock that was set back."""
        return self._store.clock_steps

    def release_time(self, url: str, *, now: float, interactive: bool = False) -> float:
        """Give the instant before which `url` must not be asked for; `ASAP` when it may be asked for at once.

        A request is held if and only if that instant is later than `now`. With `interactive` this one request is let
        through as if the user had just made a gesture. Nothing is changed by asking.
        """
        if not self._store.size or interactive or -GESTURE < now - self._gesture < GESTURE:
            return ASAP
        target = self._target(url)
        entry = self._store.find(target, now=now) if target is not None else None
        if target is None or entry is None:
            return ASAP
        release = entry.retry_after if self._opt_outs and self._opted_out(target) else entry.release
        return release if release > now else ASAP

    def response_received(
        self, url: str, status: int, headers: Headers, *, now: float, sent: float | None = None
    ) -> None:
        """Take note of a response to a request for `url`, which was `sent` then and received `now`.

        `headers` is a mapping or pairs, names in any case; text, or bytes as they came. Of a request that got no
        response nothing needs to be said.
        """
        words = self._words(headers)
        failed = status in self._failures
        if words is None and not failed and not self._store.size and not self._budget:
            return
        target = self._target(url)
        if target is None:
            return
        if failed or words is not None or self._budget is not None:
            self._count(target, status, words, now=now, sent=sent)
        elif status not in UNCOUNTED:  # the short way, for what nearly all are: a success that says nothing
            self._count_success(target, now)

    def malformed_body(self, url: str, status: int, *, now: float) -> None:
        """Take note that the body of a response already received proves broken.

        A success then counts as a failure after all: the count is one more than it was before that response. After any
        other status nothing changes.
        """
        target = self._target(url)
        if target is not None:
            self._recount(target, status, now=now)

    def user_gesture(self, *, now: float) -> None:
        """Take note that the user has just clicked or typed: nothing is held for the next 3.5 seconds."""
        if not 0 <= self._gesture - now < GESTURE:  # else one that was made in the meantime
            self._gesture = now

    def clear_backoff(self, origin: str, *, now: float) -> None:
        """Let requests to an origin come back within ten seconds, except for what a `Retry-After` holds.

        Every target and bucket of it is released at an instant of its own; the failure counts stay as they are.
        `origin` is any URL of it. For when the origin itself says that it is well.
        """
        serialised = serialised_origin(origin)
        if serialised is None:
            return
        for entry in self._store.of_origin(serialised):
            if entry.backoff > now:
                entry.backoff = min(entry.backoff, now + _SPREAD * self.draw())

    def reset(self) -> None:
        """Forget targets, buckets and spent retries, and keep the opt-outs: the network has changed."""
        self._store.clear()
        if self._budget is not None:
            self._budget.clear()

    def forget(self, *, now: float) -> int:
        """Drop what can bear on no request any more; give how much."""
        return self._store.forget(now=now)

    def retries_left(self, url: str) -> float:
        """Say how many retries the origin of `url` may be sent now; infinitely many without a budget."""
        target = self._target(url) if self._budget is not None else None
        return math.inf if target is None or self._budget is None else self._budget.left(target.origin)

    def spend_retry(self, url: str) -> bool:
        """Charge the origin's budget for a retry of `url` that is being sent; False when it must not be."""
        target = self._target(url) if self._budget is not None else None
        return True if target is None or self._budget is None else self._budget.spend(target.origin)

    def explain(self, url: str, *, now: float) -> Explanation:
        """Say what is known of `url` and why it is held or free; what a user gesture lets through is told apart."""
        target = self._target(url)
        if target is None:
            return Explanation(url=url, now=now, reason="no target")
        bucket = self._store.bucket(target, now=now)
        path, entry = bucket or (None, self._store.find(target, now=now) or Entry(ASAP))
        name = target.name if path is None else f"{target.origin}{path}*"
        if self._is_exempt(target):
            return Explanation(url=url, now=now, target=name, bucket=path, reason="localhost")
        opted_out = self._opted_out(target)
        backoff = ASAP if opted_out else entry.backoff
        reason: Reason = "opted out" if opted_out else "free"
        if max(backoff, entry.retry_after) > now:
            reason = "retry-after" if entry.retry_after >= backoff else "backoff"
            if -GESTURE < now - self._gesture < GESTURE:
                reason = "user gesture"
        return Explanation(
            url=url,
            now=now,
            target=name,
            bucket=path,
            failures=0 if opted_out else entry.failures,
            backoff=backoff,
            retry_after=entry.retry_after,
            held=reason in {"retry-after", "backoff"},
            reason=reason,
        )

    def _target(self, url: str) -> Target | None:
        # A request's response, and the question before it, most often come with the very same URL.
        known, target = self._latest
        if url != known:
            target = parse_target(url, lower_case_path=self.policy.lower_case_path)
            self._latest = url, target
        return target

    def _count(self, target: Target, status: int, words: Words | None, *, now: float, sent: float | None) -> None:
        """Take note of what a response to a request for this target says, if it says anything."""
        failed = status in self._failures
        if self._budget is not None and not failed and status not in _UNEARNED:
            self._budget.earn(target.origin)
        if failed or words is not None:
            if self._is_exempt(target):
                return
            if words is not None:
                self._heed(target, words, now)
        if failed:
            self._count_failure(target, now, sent)
        elif status not in UNCOUNTED:
            self._count_success(target, now)
        if words is not None:
            self._obey(target, words, now)

    def _recount(self, target: Target, status: int, *, now: float) -> None:
        """Make a failure of the success that was just counted."""
        if status in self._failures or status in UNCOUNTED or self._is_exempt(target) or self._opted_out(target):
            return
        entry = self._store.open(target, now=now)
        entry.take_back()
        self._back_off(entry, now)

    def _is_exempt(self, target: Target) -> bool:
        # "Requests to localhost are never blocked."
        return not self._hold_localhost and is_localhost(host_of(target.origin))

    def _opted_out(self, target: Target) -> bool:
        return bool(self._opt_outs) and host_of(target.origin) in self._opt_outs

    def _heed(self, target: Target, words: Words, now: float) -> None:
        """Obey what a response says of how it is to be counted, before it is."""
        host = host_of(target.origin)
        if words.opts_out and host not in self._opt_outs:
            if len(self._opt_outs) >= self._max_opt_outs:
                del self._opt_outs[next(iter(self._opt_outs))]
                self.opt_outs_evicted += 1
            self._opt_outs[host] = None
        for value in words.buckets[:_MAX_DECLARED]:
            path = value.lower() if self.policy.lower_case_path else value
            # section 4: the current response is a match for the path that it declares
            if path.startswith("/") and path_matches(path, target.path):
                self._store.declare(target, path, now=now)

    def _obey(self, target: Target, words: Words, now: float) -> None:
        """Hold until the latest `Retry-After` of a response, if that is later than what holds already."""
        release = max((retry_after(value, now=now) for value in words.retry_after), default=ASAP)
        store = self._store
        entry = store.open(target, now=now) if release > now else store.find(target, now=now)
        if entry is not None:
            entry.retry_after_until(release, now)

    def _count_failure(self, target: Target, now: float, sent: float | None) -> None:
        if self._opted_out(target):
            return
        entry = self._store.open(target, now=now)
        if self._coalesce:
            if sent is not None and sent < entry.failed:
                return
            entry.failed = now
        entry.fail()
        self._back_off(entry, now)

    def _count_success(self, target: Target, now: float) -> None:
        entry = self._store.find(target, now=now)
        if entry is None:
            return
        entry.succeed(now)
        if entry.count < 0 and entry.release <= now:
            self._store.close(target, entry)

    def _back_off(self, entry: Entry, now: float) -> None:
        """Set the release time after a failure (section 5, a to d)."""
        effective = entry.failures - self.policy.num_errors_to_ignore
        delay = self.policy.delay(effective, self.draw()) if effective > 0 else 0.0
        # d) release_time = max(now + delay, release_time)
        entry.back_off_until(advance(now, delay), now)
