"""A retry budget: retries are at most a tenth of an agent's requests, and a request is sent at most three times.

B. Beyer and others, "Site Reliability Engineering", chapter 21, "Deciding to Retry": "a per-request retry budget of up
to three attempts", and "a per-client retry budget. Each client keeps track of the ratio of requests that correspond to
retries. A request will only be retried as long as this ratio is below 10%." A retry is sent almost at once, and a
request without a retry is a failure for the program or the person, who tries again at their own pace: that is a new
request. The book leaves the window of the ratio open; here it is that of its adaptive throttling: two minutes.
"""

from collections import deque
from typing import Final

from headgate.lab.policies import AgentView, Draw, Headers, OriginView, Policy

MAX_RATIO: Final = 0.1
"""The part of an agent's requests that may be retries."""
MAX_ATTEMPTS: Final = 3
"""How often a request is sent."""
WINDOW: Final = 120.0
"""Seconds in which requests and retries are counted."""
_LONGEST_PAUSE: Final = 1.0
"""Seconds: "retry the request immediately", with jitter."""


class RetryRatio:
    """The requests of an agent in the last `WINDOW` seconds, and how many of them were retries."""

    def __init__(self) -> None:
        self._sent: deque[tuple[float, bool]] = deque()
        self._retries = 0

    def sent(self, *, is_retry: bool, now: float) -> None:
        """Count a request."""
        self._sent.append((now, is_retry))
        self._retries += is_retry

    def permits_retry(self, *, now: float) -> bool:
        """Return whether the ratio is below the maximum."""
        sent = self._sent
        while sent and sent[0][0] <= now - WINDOW:
            self._retries -= sent.popleft()[1]
        return self._retries < MAX_RATIO * len(sent)


class RetryBudget(Policy):
    """Retries each failed request almost at once, within the budgets of the request and of the agent."""

    def __init__(self, agent: AgentView, origin: OriginView, draw: Draw) -> None:
        super().__init__(agent, origin, draw)
        self._ratio = RetryRatio()
        self._attempts = 0
        self._retries_next = False

    def received(self, status: int, headers: Headers, *, now: float) -> None:  # noqa: ARG002 - a `Policy`
        """Count the request that was answered, as a retry if it was one."""
        self._ratio.sent(is_retry=self._retries_next, now=now)
        self._attempts = self._attempts + 1 if self._retries_next else 1
        self._retries_next = False

    def pause(self, failures: int, *, now: float) -> float | None:  # noqa: ARG002 - a `Policy`
        """Return a short pause before a retry; None if there is none."""
        self._retries_next = self._attempts < MAX_ATTEMPTS and self._ratio.permits_retry(now=now)
        return _LONGEST_PAUSE * self.draw() if self._retries_next else None
