"""The backoff policy: a pure formula and its numbers (anti-ddos-throttling.txt, section 5).

This file knows neither targets, responses nor clocks. Durations are seconds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from headgate.errors import check_count, check_seconds, fail_if

_DURATIONS = ("initial_backoff", "maximum_backoff", "entry_lifetime")


@dataclass(frozen=True, slots=True)
class Policy:
    """Which statuses are failures, what they hold, and for how long.

    The defaults are for programs, and have the document's five numbers. `Policy.draft()` is the document, literally.

    Raises `ConfigurationError`, which names the field, for an invalid number.
    """

    num_errors_to_ignore: int = 2
    """The number of successive failures to ignore before starting to back off."""
    initial_backoff: float = 0.7
    """Seconds: the initial length of the backoff period."""
    multiply_factor: float = 1.4
    """The factor of the period for each successive failure."""
    jitter_factor: float = 0.1
    """From 0 to 1: the greatest part of the period that the jitter subtracts."""
    maximum_backoff: float = 900.0
    """Seconds: the maximum length of the backoff period."""
    entry_lifetime: float = 120.0
    """Seconds that a target without failures is remembered after its release."""
    failure_statuses: frozenset[int] = frozenset({429, 500, 502, 503, 504, 509})
    """The status codes that count as failures."""
    scope: Literal["origin", "path"] = "origin"
    """What is held. "path": always the throttling target, and requests without a response count for nothing. "origin":
    failures hold the origin, also failures to connect, except for 500 and 509, which hold the target; a `Retry-After`
    holds the origin, except with a redirect and with 202 to a POST (RFC 9110, section 10.2.3), and RateLimit fields are
    obeyed. A bucket is held in place of what it contains."""
    max_retry_after: float = 86_400.0
    """Seconds for which a `Retry-After`, or a RateLimit field, holds at most."""
    first_delay_is_initial: bool = False
    """Whether the first backoff is `initial_backoff`; by the document's formula it is already multiplied once."""
    lower_case_path: bool = False
    """Whether paths that differ only in case are the same target."""

    @classmethod
    def check(cls, policy: object) -> None:
        """Raise `ConfigurationError` for what is not a policy, such as the name of one."""
        fail_if(not isinstance(policy, cls), f"policy must be a Policy, such as Policy.chromium(), got {policy!r:.80}")

    def __post_init__(self) -> None:
        # A policy must be hashable and must not change; a set literal is mutable.
        given = self.failure_statuses
        statuses = frozenset(given) if isinstance(given, Iterable) else frozenset((None,))
        fail_if(
            not all(isinstance(status, int) for status in statuses),
            f"failure_statuses must be a set such as {{500, 503}}, got {given!r:.80}",
        )
        object.__setattr__(self, "failure_statuses", statuses)
        check_count("num_errors_to_ignore", self.num_errors_to_ignore)
        check_seconds("max_retry_after", self.max_retry_after)
        fail_if(self.scope not in {"origin", "path"}, f"scope must be 'origin' or 'path', got {self.scope!r:.80}")
        for name in ("multiply_factor", "jitter_factor"):
            fail_if(
                not isinstance(getattr(self, name), (int, float)),
                f"{name} must be a number, got {getattr(self, name)!r:.80}",
            )
        for name in _DURATIONS:
            check_seconds(name, getattr(self, name))
            fail_if(getattr(self, name) == math.inf, f"{name} must be finite, got inf")
        fail_if(
            not 1 <= self.multiply_factor < math.inf,
            f"multiply_factor must be at least 1 and finite, got {self.multiply_factor!r}",
        )
        fail_if(not 0 <= self.jitter_factor <= 1, f"jitter_factor must be from 0 to 1, got {self.jitter_factor!r}")

    @classmethod
    def draft(cls) -> "Policy":
        """Return the document, literally: 500, 503 and 509 are failures, which hold their target."""
        return cls(failure_statuses=frozenset({500, 503, 509}), scope="path", max_retry_after=math.inf)

    @classmethod
    def chromium(cls) -> "Policy":
        """Return the policy that Chromium shipped: the first backoff is 0.7 s, jitter 0.4, and paths in lower case."""
        return replace(cls.draft(), jitter_factor=0.4, first_delay_is_initial=True, lower_case_path=True)

    @property
    def failing_lifetime(self) -> float:
        """Seconds that a target with failures is remembered after its release."""
        return max(self.maximum_backoff, self.entry_lifetime)

    def delay(self, effective_failure_count: int, draw: float) -> float:
        """Return the seconds of the backoff, at most `maximum_backoff`; `draw` is from [0, 1).

        `effective_failure_count` is the failure count minus `num_errors_to_ignore`, and may be negative.
        """
        if effective_failure_count <= 0 or not self.initial_backoff:
            return 0.0  # "A special case makes delay == 0 for effective_failure_count."
        try:
            # a) delay = initial_backoff_ms*multiply_factor^effective_failure_count
            delay = self.initial_backoff * self.multiply_factor ** (
                effective_failure_count - self.first_delay_is_initial
            )
        except OverflowError:  # raised by the power; a product that is too large is infinite
            delay = math.inf
        if delay == math.inf:
            return self.maximum_backoff
        # b) delay -= rand[0,1) * jitter_factor * delay
        delay -= draw * self.jitter_factor * delay
        # c) delay = min(delay, maximum_backoff_ms)
        return min(delay, self.maximum_backoff)
