"""A whole response as a value, and the responses to requests that a rule rejects or a concurrency limit refuses.

Sources: smockron.txt, Protocol (503 and Retry-After); draft-ietf-httpapi-ratelimit-headers-11 (RateLimit,
RateLimit-Policy and problem types); RFC 9457 (problem details); RFC 8288 (Link); anti-ddos-throttling.txt
(DDoS-Bucket-With).
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol, Self
from urllib.parse import quote

import msgspec

from headgate.bundle.files.open_file import OpenFile
from headgate.errors import fail_if
from headgate.http.date import whole_seconds
from headgate.http.fields import parameter, sf_string
from headgate.limit import Accounting, Domain, Gatekeeper
from headgate.origin.pages import PROBLEM, REQUEST_ID, Form, fill_template, preferred_form
from headgate.release import NEVER


class BodySource(Protocol):
    """Response content that is read when it is sent."""

    @property
    def length(self) -> int:
        """Bytes."""
        ...

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read the bytes from `start` to before `stop`, or all; raises `OSError` as `OpenFile.read` does."""
        ...

    def cut(self, start: int, stop: int) -> Self:
        """Return the bytes from `start` to before `stop` as a source of their own."""
        ...


class FileSlice(msgspec.Struct, frozen=True):
    """`length` bytes of a file from `offset` on: a `BodySource` that `sendfile` can send."""

    file: OpenFile
    offset: int
    length: int

    def read(self, start: int = 0, stop: int | None = None) -> bytes:
        """Read some of it, or all; raises `OSError` as `OpenFile.read` does."""
        return self.file.read_exactly(self.offset + start, (self.length if stop is None else stop) - start)

    def cut(self, start: int, stop: int) -> "FileSlice":
        """Return the slice of this slice from `start` to before `stop`."""
        return FileSlice(self.file, self.offset + start, stop - start)


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

    names_request: bool = False
    """Whether `REQUEST_ID` in the body is replaced by the id of the request when it is sent."""

    rendered: tuple[tuple[int, bool, int, bool, int], list[bytes], int] | None = None
    """What the gateway sent last: the second and the kind of request that it is for, the bytes before, between and
    after the ids of the request, and the size of the content."""


def problem(
    status: int, title: str, detail: str, accept: bytes | None = None, *, default: Form = "text", page: str = ""
) -> Response:
    """Make a response of the gate in the form that `accept` prefers, by default a line of text; see `document`."""
    form = preferred_form(accept, default, has_page=bool(page))
    return document(status, (title, detail), {"type": "about:blank"}, form=form, page=page)


def document(
    status: int,
    title_and_detail: tuple[str, str],
    members: Mapping[str, Any],
    *,
    form: Form,
    page: str = "",
    seconds: int | None = None,
) -> Response:
    """Write title and detail as a line of text, with more `members` as a problem document, or into a page.

    `page` is the template of a page; with one, every form names the request. `seconds` is the value of Retry-After.
    """
    title, detail = title_and_detail
    if form == "problem":
        content = {**members, "title": title, "status": status, "detail": to_text(detail)}
        if page:
            content["instance"] = REQUEST_ID.decode()
        media_type, body = PROBLEM, msgspec.json.encode(content)
    elif form == "html":
        after = "" if seconds is None else str(seconds)
        text = fill_template(page, status=str(status), title=title, reason=detail, retry_after=after)
        media_type, body = b"text/html; charset=utf-8", text.encode("utf-8", "replace")
    else:
        text = f"{title}. {detail}\n" + (f"Request ID: {REQUEST_ID.decode()}\n" if page else "")
        media_type, body = b"text/plain; charset=utf-8", text.encode("utf-8", "replace")
    fields = [
        (b"content-type", media_type),
        (b"content-length", b"%d" % len(body)),
        # A cache must not give a rejection to clients that are not rejected.
        (b"cache-control", b"no-store"),
    ]
    return Response(status, fields, body, names_request=bool(page))


def to_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode; they come from names that were not UTF-8."""
    return text.encode("utf-8", "replace").decode()


_STATUSES = (503, 429)
_PATH = "/%:@!$&'()*+,;="
"""Characters of a path that are not percent-encoded, besides letters, digits and `-._~`."""
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The problem type of a request that exceeds a policy (the draft, section 5.1)."""

_ROUNDING = 1e-6
"""Of a number of requests, computed from instants since 1970."""
_MAX_RENDERED = 2048
"""Responses that are cached by domain, seconds and form."""


class Rejections:
    """Writes the responses to rejected requests: called with an `Accounting`, returns a `Response`.

    A response names the time at which a request would be accepted, the policies, and the reason, as a line of text or a
    problem document.
    `domains` gives the policies to name; a domain that is not among them is named without its policies. `status` is
    503 or 429. `path_prefixes` gives the path below which all resources of a domain are, by its name; it is sent as
    `DDoS-Bucket-With`, so that agents throttle these resources together. Without one, that is `/`. `page` is that of
    `document`. Responses are cached: they must not be changed. Raises `ConfigurationError` for another status, or a
    prefix that is not a path.
    """

    def __init__(
        self,
        domains: Iterable[Domain] = (),
        *,
        status: int = 503,
        path_prefixes: Mapping[str, str] | None = None,
        page: str = "",
    ) -> None:
        self._domains = {domain.name: domain for domain in domains}
        self._page = page
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
        return self._rendered(accounting.domain, seconds, preferred_form(accept, has_page=bool(self._page)))

    def _render(self, name: str, seconds: int | None, form: Form) -> Response:
        domain = self._domains.get(name) or Domain(name)
        when = "not at any time now known" if seconds is None else f"in {seconds} s"
        detail = f"Requests for {name!r} come faster than its rule allows; this one would be accepted {when}."
        if form == "html":  # for people, who know neither the domain nor its rule
            detail = f"You have sent more requests than this site allows. Try again {_for_people(seconds)}."
        members: dict[str, Any] = {"type": QUOTA_EXCEEDED if domain.rules else "about:blank"}
        if domain.rules:
            members["violated-policies"] = [to_text(name)]
        text = "Too many requests", detail
        response = document(self.status, text, members, form=form, page=self._page, seconds=seconds)
        if seconds is not None:
            response.fields.append((b"retry-after", b"%d" % seconds))
        if domain.rules:
            response.fields.append((b"ratelimit-policy", ratelimit_policy(domain)))
        response.fields.append((b"ratelimit", ratelimit(name, seconds)))
        response.fields.append((b"ddos-bucket-with", self._buckets.get(name, "/").encode()))
        return response


class QuotaFields:
    """Writes the field lines about the quota of an accepted request: called with its `Accounting`.

    `shares` has domains of algorithm `gcra`: lines are written where less than this share of a burst is left. They name
    the rule that leaves the fewest requests, and the seconds until its whole burst is available again.
    """

    def __init__(self, gatekeeper: Gatekeeper, domains: Iterable[Domain], shares: Mapping[str, float]) -> None:
        self._clock, self._history = gatekeeper.clock, gatekeeper.history
        self._domains = {domain.name: domain for domain in domains if domain.name in shares}
        self._limits = {
            name: [(rule.window * (1 - shares[name]), rule.window, rule.interval) for rule in domain.rules]
            for name, domain in self._domains.items()
        }
        self._least = {name: min(limits)[0] for name, limits in self._limits.items()}
        self._rendered = lru_cache(_MAX_RENDERED)(self._render)

    def __call__(self, accounting: Accounting) -> bytes:
        """Return the lines; empty for none."""
        name = accounting.domain
        least = self._least.get(name)
        if least is None or self._history is None:
            return b""
        history, instant = self._history(name, accounting.identifier), accounting.release + self._clock.behind
        if history is None or max(history) - instant <= least:
            return b""  # most requests
        found = []
        for number, (threshold, window, interval) in enumerate(self._limits[name], start=1):
            used = history[number] - instant
            if used > threshold:
                left = max(0, int((window - used) / interval + _ROUNDING))
                found.append((left, number, whole_seconds(used)))
        return self._rendered(name, *min(found)) if found else b""

    def _render(self, name: str, left: int, number: int, seconds: int) -> bytes:
        policy = ratelimit_policy(self._domains[name])
        item = ratelimit(name if number == 1 else f"{name}/{number}", seconds, left)
        return b"RateLimit-Policy: %b\r\nRateLimit: %b\r\n" % (policy, item)


def _for_people(seconds: int | None) -> str:
    if seconds is None:
        return "later"
    return f"in {seconds} second{'s' if seconds > 1 else ''}" if seconds < 120 else f"in {-(-seconds // 60)} minutes"


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


def ratelimit(name: str, seconds: int | None, left: int = 0) -> bytes:
    """Write the value of `RateLimit`: what is `left` for `seconds`, if they are known; nothing for a held identifier.

    One item speaks for the whole domain: a gatekeeper knows the hold, not which of several rules made it.
    """
    item = sf_string(name) + parameter(b"r", left)
    return item if seconds is None else item + parameter(b"t", seconds)


_LIMIT = "concurrency"
"""The name of the limit in RateLimit; its quota is not sent, because the draft advises against showing capacity."""
REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
"""The problem type of a request that cannot be satisfied now (the draft, section 5.2)."""

_MAX_SECONDS = 86_400


class Refusals:
    """Writes the responses to refused requests: called with the seconds that a client is asked to wait.

    `status` is 503 or 429, as that of rejections; `page` is the template of `document`. Responses are cached: they must
    not be changed. Raises `ConfigurationError` for another status.
    """

    def __init__(self, *, status: int = 503, page: str = "") -> None:
        self._page = page
        self._status = _checked_status(status, "refusal")
        self._rendered = lru_cache(_MAX_RENDERED)(self._render)

    def __call__(self, retry_after: float, *, accept: bytes | None = None, link: bytes = b"") -> Response:
        """Answer a refused request in a form that `accept` prefers; `link` is the value of Link.

        Seconds round up to whole ones, from a second to a day.
        """
        form = preferred_form(accept, has_page=bool(self._page))
        seconds = min(max(1, whole_seconds(retry_after)), _MAX_SECONDS)
        return self._rendered(seconds, form, link)

    def _render(self, seconds: int, form: Form, link: bytes) -> Response:
        detail = f"The server is handling as many requests as it can; try again in {seconds} s."
        if form == "html":
            detail = f"This site is handling as many requests as it can. Try again {_for_people(seconds)}."
        text, members = ("Server is busy", detail), {"type": REDUCED_CAPACITY}
        response = document(self._status, text, members, form=form, page=self._page, seconds=seconds)
        response.fields.append((b"retry-after", b"%d" % seconds))
        response.fields.append((b"ratelimit", ratelimit(_LIMIT, seconds)))
        if link:
            response.fields.append((b"link", link))
        return response
