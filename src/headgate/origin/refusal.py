"""The responses to requests that a concurrency limit refuses: when to come back, and why.

Sources: draft-ietf-httpapi-ratelimit-headers-11 (RateLimit, and the problem type); RFC 9457 (problem details); RFC 8288
(Link).
"""

from functools import lru_cache

from headgate.errors import ConfigurationError
from headgate.http.date import whole_seconds
from headgate.origin.response import Response, document, prefers_problem, ratelimit, remembered

POLICY = "concurrency"
"""The name of the limit in RateLimit; its quota is not sent, because the draft advises against showing capacity."""
REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
"""The problem type of a request that cannot be satisfied now (the draft, section 5.2)."""

_MAX_SECONDS = 86_400
_MAX_RENDERED = 1024
"""Responses that are cached by seconds, form and link: refusing must cost little when there is much to refuse."""


class Refusals:
    """Writes the responses to refused requests: called with the seconds that a client is asked to wait.

    `status` is 503 or 429, as that of rejections. Responses are cached: they must not be changed. Raises
    `ConfigurationError` for another status.
    """

    def __init__(self, *, status: int = 503) -> None:
        if status not in (503, 429):
            raise ConfigurationError(f"refusal status {status} does not ask the client to come back; use 503 or 429")
        self._status = status
        self._prefers_problem = remembered(prefers_problem)
        self._rendered = lru_cache(_MAX_RENDERED)(self._render)

    def __call__(self, retry_after: float, *, accept: bytes | None = None, link: bytes = b"") -> Response:
        """Answer a refused request in a form that `accept` prefers; `link` is the value of Link.

        Seconds round up to whole ones, from a second to a day.
        """
        return self._rendered(_seconds(retry_after), self._prefers_problem(accept), link)

    def _render(self, seconds: int, is_problem: bool, link: bytes) -> Response:  # noqa: FBT001 - a key of the cache
        detail = f"The server is handling as many requests as it can; try again in {seconds} s."
        members = {"type": REDUCED_CAPACITY}
        response = document(self._status, ("Server is busy", detail), members, is_problem=is_problem)
        response.fields.append((b"retry-after", b"%d" % seconds))
        response.fields.append((b"ratelimit", ratelimit(POLICY, seconds)))
        if link:
            response.fields.append((b"link", link))
        return response


@lru_cache(_MAX_RENDERED)
def _seconds(retry_after: float) -> int:
    return min(max(1, whole_seconds(retry_after)), _MAX_SECONDS)
