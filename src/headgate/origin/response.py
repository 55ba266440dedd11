"""A whole response as a value, and the responses to requests that a rule rejects or a concurrency limit refuses.

Sources: smockron.txt, Protocol (503 and Retry-After); draft-ietf-httpapi-ratelimit-headers-11 (RateLimit,
RateLimit-Policy and problem types); RFC 9457 (problem details); RFC 8288 (Link); anti-ddos-throttling.txt
(DDoS-Bucket-With).
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from headgate.errors import fail_if
from headgate.http.date import whole_seconds
from headgate.http.fields import parameter, sf_string
from headgate.http.media_type import negotiate, quality
from headgate.limit import Accounting, Domain, Gatekeeper
from headgate.origin.file_slice import BodySource
from headgate.release import NEVER

PROBLEM = b"application/problem+json"
_TEXT = b"text/plain"
_JSON = b"application/json"

_MAX_REMEMBERED = 256
"""Bytes of the longest Accept whose verdict is cached, and the number of verdicts cached."""


class Response(msgspec.Struct):
    """A whole response, ready to be sent."""

    status: int
    """The status code."""

    fields: list[tuple[bytes, bytes]]
    """Field lines, names in lower case; Content-Length is among them."""

    body: bytes
    """The content."""

    source: BodySource | None = None
    """Where the content is read from when it is sent; then `body` is empty."""

    rendered: tuple[tuple[int, bool, int, bool], bytes] | None = None
    """The bytes that the gateway sent last, and the second and the kind of client that they are for."""


def problem(status: int, title: str, detail: str, accept: bytes | None = None) -> Response:
    """Make a response of the gate: a line of text, or a problem document if `accept` prefers one."""
    return document(status, (title, detail), {"type": "about:blank"}, is_problem=prefers_problem(accept))


def document(
    status: int, title_and_detail: tuple[str, str], members: Mapping[str, Any], *, is_problem: bool
) -> Response:
    """Write title and detail as a line of text, or with more `members` as a problem document."""
    title, detail = title_and_detail
    if is_problem:
        content = {**members, "title": title, "status": status, "detail": to_text(detail)}
        media_type, body = PROBLEM, msgspec.json.encode(content)
    else:
        media_type, body = b"text/plain; charset=utf-8", f"{title}. {detail}\n".encode("utf-8", "replace")
    fields = [
        (b"content-type", media_type),
        (b"content-length", b"%d" % len(body)),
        # A cache must not give a rejection to clients that are not rejected.
        (b"cache-control", b"no-store"),
    ]
    return Response(status, fields, body)


def prefers_problem(accept: bytes | None) -> bool:
    """Return whether a problem document suits better than text.

    A client that prefers `application/json` to text gets a problem document, unless it names problem documents itself.
    """
    if accept is None or b"application/" not in accept.lower():
        return False
    return _prefers_problem(accept) if len(accept) <= _MAX_REMEMBERED else _prefers_problem.__wrapped__(accept)


@lru_cache(_MAX_REMEMBERED)
def _prefers_problem(accept: bytes) -> bool:
    if PROBLEM in accept.lower():
        return negotiate(accept, (_TEXT, PROBLEM)) == PROBLEM
    return quality(accept, _JSON) > quality(accept, _TEXT)


def to_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode; they come from names that were not UTF-8."""
    return text.encode("utf-8", "replace").decode()


_STATUSES = (503, 429)
_PATH = "/%:@!$&'()*+,;="
"""Characters of a path that are not percent-encoded, besides letters, digits and `-._~`."""
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The problem type of a request that exceeds a policy (the draft, section 5.1)."""

_MAX_RENDERED = 2048
"""Responses that are cached by domain, seconds and form."""


class Rejections:
    """Writes the responses to rejected requests: called with an `Accounting`, returns a `Response`.

    A response names the time at which a request would be accepted, the policies, and the reason, as a line of text or a
    problem document.
    `domains` gives the policies to name; a domain that is not among them is named without its policies. `status` is
    503 or 429. `path_prefixes` gives the path below which all resources of a domain are, by its name; it is sent as
    `DDoS-Bucket-With`, so that agents throttle these resources together. Without one, that is `/`. Responses are
    cached: they must not be changed. Raises `ConfigurationError` for another status, or a prefix that is not a path.
    """

    def __init__(
        self,
        domains: Iterable[Domain] = (),
        *,
        status: int = 503,
        path_prefixes: Mapping[str, str] | None = None,
    ) -> None:
        self._domains = {domain.name: domain for domain in domains}
        self.status = _checked_status(status, "rejection")
        """The status code of the responses."""
        self._buckets = {name: quote(prefix, safe=_PATH) for name, prefix in (path_prefixes or {}).items()}
        for name, bucket in self._buckets.items():
            # anti-ddos-throttling.txt: an agent ignores a bucket that does not begin with a slash.
            fail_if(
                not bucket.startswith("/"),
                f"domain {name!r}: invalid path prefix {bucket!r}; expected one such as '/api/'",
            )
        self._rendered = lru_cache(_MAX_RENDERED)(self._render)

    @classmethod
    def of(
        cls,
        gatekeeper: Gatekeeper,
        *,
        status: int = 503,
        path_prefixes: Mapping[str, str] | None = None,
    ) -> "Rejections":
        """Write the rejections of `gatekeeper`, whose domains are known where its master is embedded."""
        fail_if(not isinstance(gatekeeper, Gatekeeper), f"gatekeeper must be a Gatekeeper, got {gatekeeper!r:.80}")
        domains = gatekeeper.master.domains.values() if gatekeeper.master is not None else ()
        return cls(domains, status=status, path_prefixes=path_prefixes)

    def __call__(self, accounting: Accounting, *, now: float, accept: bytes | None = None) -> Response:
        """Answer the rejected request of `accounting` at the instant `now`, in a form that `accept` prefers.

        Seconds round up; for a release of `NEVER` the fields that name a time are absent.
        """
        release = accounting.release
        seconds = None if release == NEVER else max(1, whole_seconds(release - now))
        return self._rendered(accounting.domain, seconds, prefers_problem(accept))

    def _render(self, name: str, seconds: int | None, is_problem: bool) -> Response:  # noqa: FBT001 - a key of the cache
        domain = self._domains.get(name) or Domain(name)
        when = "not at any time now known" if seconds is None else f"in {seconds} s"
        detail = f"Requests for {name!r} come faster than its rule allows; this one would be accepted {when}."
        members: dict[str, Any] = {"type": QUOTA_EXCEEDED if domain.rules else "about:blank"}
        if domain.rules:
            members["violated-policies"] = [to_text(name)]
        response = document(self.status, ("Too many requests", detail), members, is_problem=is_problem)
        if seconds is not None:
            response.fields.append((b"retry-after", b"%d" % seconds))
        if domain.rules:
            response.fields.append((b"ratelimit-policy", ratelimit_policy(domain)))
        response.fields.append((b"ratelimit", ratelimit(name, seconds)))
        response.fields.append((b"ddos-bucket-with", self._buckets.get(name, "/").encode()))
        return response


def _checked_status(status: int, of: str) -> int:
    fail_if(status not in _STATUSES, f"{of} status {status} does not ask the client to come back; use 503 or 429")
    return status


def ratelimit_policy(domain: Domain) -> bytes:
    """Write the value of `RateLimit-Policy`: one item per rule, with quota `q` and window `w` in whole seconds.

    The first rule's policy has the domain's name, each other one the name, a slash and its number from 2 on: a policy
    is known by its name, so names in one list must differ. `w` is rounded up, since it must be positive and whole.
    """
    items = []
    for number, rule in enumerate(domain.rules, start=1):
        name = domain.name if number == 1 else f"{domain.name}/{number}"
        window = max(1, math.ceil(rule.exact_interval * rule.burst))
        items.append(sf_string(name) + parameter(b"q", rule.burst) + parameter(b"w", window))
    return b", ".join(items)


def ratelimit(name: str, seconds: int | None) -> bytes:
    """Write the value of `RateLimit` for a held identifier: nothing available for `seconds`, if they are known.

    One item speaks for the whole domain: a gatekeeper knows the hold, not which of several rules made it.
    """
    item = sf_string(name) + parameter(b"r", 0)
    return item if seconds is None else item + parameter(b"t", seconds)


_LIMIT = "concurrency"
"""The name of the limit in RateLimit; its quota is not sent, because the draft advises against showing capacity."""
REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
"""The problem type of a request that cannot be satisfied now (the draft, section 5.2)."""

_MAX_SECONDS = 86_400


class Refusals:
    """Writes the responses to refused requests: called with the seconds that a client is asked to wait.

    `status` is 503 or 429, as that of rejections. Responses are cached: they must not be changed. Raises
    `ConfigurationError` for another status.
    """

    def __init__(self, *, status: int = 503) -> None:
        self._status = _checked_status(status, "refusal")
        self._rendered = lru_cache(_MAX_RENDERED)(self._render)

    def __call__(self, retry_after: float, *, accept: bytes | None = None, link: bytes = b"") -> Response:
        """Answer a refused request in a form that `accept` prefers; `link` is the value of Link.

        Seconds round up to whole ones, from a second to a day.
        """
        return self._rendered(_limited_seconds(retry_after), prefers_problem(accept), link)

    def _render(self, seconds: int, is_problem: bool, link: bytes) -> Response:  # noqa: FBT001 - a key of the cache
        detail = f"The server is handling as many requests as it can; try again in {seconds} s."
        members = {"type": REDUCED_CAPACITY}
        response = document(self._status, ("Server is busy", detail), members, is_problem=is_problem)
        response.fields.append((b"retry-after", b"%d" % seconds))
        response.fields.append((b"ratelimit", ratelimit(_LIMIT, seconds)))
        if link:
            response.fields.append((b"link", link))
        return response


@lru_cache(_MAX_RENDERED)
def _limited_seconds(retry_after: float) -> int:
    return min(max(1, whole_seconds(retry_after)), _MAX_SECONDS)
