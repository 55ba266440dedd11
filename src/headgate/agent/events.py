"""What the hooks of a `Courtesy` are called with."""

from typing import NamedTuple


class Hold(NamedTuple):
    """A request is held: it waits, or `NoContact` is raised. Instants are seconds since 1970."""

    url: str
    reason: str
    """As in `NoContact`: "backoff", "retry-after", "retry_budget", or "advice_…"."""
    target: str
    """What is held: a throttling target, a bucket with `*` behind its path, or an origin."""
    release_time: float
    """When the request may go at the earliest."""
    now: float
    delay: float
    """Seconds that the request waits now; 0 where `NoContact` is raised."""


class Retry(NamedTuple):
    """A request is going to be sent again."""

    url: str
    status: int
    """The status of the response that is the reason."""
    number: int
    """1 for the first retry of a request."""
    delay: float
    """Seconds until it is sent, if nothing else holds it then."""
