"""What a request that is turned away is told: the rejection, and the gate's own errors, as whole responses.

Nothing here sends anything; a `Response` is a value. Sources: smockron.txt, Protocol (503 and Retry-After);
draft-ietf-httpapi-ratelimit-headers-11 (RateLimit and RateLimit-Policy); RFC 9457 (problem details);
anti-ddos-throttling.txt (DDoS-Bucket-With, Exponential-Throttling).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from headgate.errors import ConfigurationError
from headgate.http import negotiate, parameter, quality, sf_string, whole_seconds
from headgate.limit import Accounting, Domain, Gatekeeper
from headgate.origin.part import Content
from headgate.release import NEVER

__all__ = ["Rejections", "Response", "problem", "ratelimit", "ratelimit_policy", "rejection"]

_STATUSES = (503, 429)
_TEXT = b"text/plain"
_PROBLEM = b"application/problem+json"
_JSON = b"application/json"
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The problem type of a request that exceeds a policy (the draft, section 5.1)."""


class Response(msgspec.Struct):
    """A whole response, ready to be sent by whatever speaks to the agent."""

    status: int
    """The status code."""

    fields: list[tuple[bytes, bytes]]
    """Field lines, names in lower case; Content-Length is among them."""

    body: bytes
    """The content."""

    part: Content | None = None
    """The content where it comes from a file: then `body` is empty."""


class Rejections:
    """How the rejections of some domains are worded: called with an `Accounting`, gives its `Response`.

    `domains` gives the policies to name; a domain that is not among them is named without its policies. `status` is
    503 or 429. `buckets` gives the `DDoS-Bucket-With` of a domain by its name; the domains in `opted_out` send
    `Exponential-Throttling: disable`. Raises `ConfigurationError` for another status, or a bucket that is no path.
    """

    def __init__(
        self,
        domains: Iterable[Domain] = (),
        *,
        status: int = 503,
        buckets: Mapping[str, str] | None = None,
        opted_out: Iterable[str] = (),
    ) -> None:
        if status not in _STATUSES:
            raise ConfigurationError(f"rejection status {status} is not one that says to come back; use 503 or 429")
        self._domains = {domain.name: domain for domain in domains}
        self._status = status
        self._buckets = dict(buckets or {})
        self._opted_out = frozenset(opted_out)
        for name, bucket in self._buckets.items():
            # anti-ddos-throttling.txt: an agent ignores a bucket that does not begin with a slash.
            if not (bucket.startswith("/") and bucket.isascii() and bucket.isprintable()):
                raise ConfigurationError(f"bucket {bucket!r} of domain {name!r} is not a path; try '/api/'")

    @classmethod
    def of(
        cls,
        gatekeeper: Gatekeeper,
        *,
        status: int = 503,
        buckets: Mapping[str, str] | None = None,
        opted_out: Iterable[str] = (),
    ) -> "Rejections":
        """Word the rejections of `gatekeeper`, whose domains are known where its master is embedded."""
        domains = gatekeeper.master.domains.values() if gatekeeper.master is not None else ()
        return cls(domains, status=status, buckets=buckets, opted_out=opted_out)

    def __call__(self, accounting: Accounting, *, now: float, accept: bytes | None = None) -> Response:
        """Answer the rejected request of `accounting` at the instant `now`, in a form that `accept` likes."""
        name = accounting.domain
        return rejection(
            accounting,
            self._domains.get(name) or Domain(name),
            now=now,
            accept=accept,
            status=self._status,
            bucket=self._buckets.get(name),
            opt_out=name in self._opted_out,
        )


def rejection(
    accounting: Accounting,
    domain: Domain,
    *,
    now: float,
    accept: bytes | None = None,
    status: int = 503,
    bucket: str | None = None,
    opt_out: bool = False,
) -> Response:
    """Answer a rejected request: when it may come again, under which policies, and why.

    `domain` gives the policies; one without rules gives none. `accept` is the request's Accept and chooses between a
    line of text and a problem document. `bucket` becomes `DDoS-Bucket-With`; `opt_out` sends
    `Exponential-Throttling: disable`. Seconds round up, and a release of `NEVER` names no time.
    """
    wait = accounting.release - now
    seconds = None if accounting.release == NEVER else max(1, whole_seconds(wait))
    when = "not at any time now known" if seconds is None else f"in {seconds} s"
    detail = f"Requests for {domain.name!r} come faster than its rule allows; this one would be accepted {when}."
    members = {"violated-policies": [_sayable(domain.name)]} if domain.rules else {}
    kind = _QUOTA_EXCEEDED if domain.rules else "about:blank"
    response = _document(status, ("Too many requests", detail), accept, {"type": kind, **members})
    if seconds is not None:
        response.fields.append((b"retry-after", b"%d" % seconds))
    if domain.rules:
        response.fields.append((b"ratelimit-policy", ratelimit_policy(domain)))
    response.fields.append((b"ratelimit", ratelimit(domain.name, seconds)))
    if bucket:
        response.fields.append((b"ddos-bucket-with", bucket.encode("utf-8", "replace")))
    if opt_out:
        response.fields.append((b"exponential-throttling", b"disable"))
    return response


def problem(status: int, title: str, detail: str, accept: bytes | None = None) -> Response:
    """Answer for the gate itself: a line of text, or a problem document where `accept` prefers one (RFC 9457)."""
    return _document(status, (title, detail), accept, {"type": "about:blank"})


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
    """Write the value of `RateLimit` for a held identifier: nothing available for `seconds`, if that is known.

    One item speaks for the whole domain: a gatekeeper knows the hold, not which of several rules made it.
    """
    item = sf_string(name) + parameter(b"r", 0)
    return item if seconds is None else item + parameter(b"t", seconds)


def _document(status: int, words: tuple[str, str], accept: bytes | None, members: dict[str, Any]) -> Response:
    title, detail = words
    if _likes_problems(accept):
        content = {**members, "title": title, "status": status, "detail": _sayable(detail)}
        kind, body = _PROBLEM, msgspec.json.encode(content)
    else:
        kind, body = b"text/plain; charset=utf-8", f"{title}. {detail}\n".encode("utf-8", "replace")
    fields = [
        (b"content-type", kind),
        (b"content-length", b"%d" % len(body)),
        # A stored refusal would be given to agents that were not refused.
        (b"cache-control", b"no-store"),
    ]
    return Response(status, fields, body)


def _likes_problems(accept: bytes | None) -> bool:
    """Say whether a problem document suits better than text.

    An agent that asks for `application/json` is better off with a problem document than with text, which it did not
    ask for either: its liking for JSON counts, unless it names problem documents itself.
    """
    if accept is None or b"application/" not in accept.lower():
        return False
    if _PROBLEM in accept.lower():
        return negotiate(accept, (_TEXT, _PROBLEM)) == _PROBLEM
    return quality(accept, _JSON) > quality(accept, _TEXT)


def _sayable(text: str) -> str:
    """Replace what UTF-8 cannot write: lone surrogates, from names that were not UTF-8 to begin with."""
    return text.encode("utf-8", "replace").decode()
