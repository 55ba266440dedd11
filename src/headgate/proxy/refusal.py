"""How a CONNECT is refused: one word for why, and from it the status, `Retry-After` and `Proxy-Status`.

It is `Retry-After` that a browser goes by: 0 is about this one origin, and the next may be asked for at once; a number
is about the proxy, which is then left alone for so long; and a refusal without one makes it avoid the proxy for
minutes, for every origin. The same word is counted and logged.
"""

import enum
import errno
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from headgate.errors import HeadgateError
from headgate.http import sf_string, whole_seconds
from headgate.proxy.connect import Refused

__all__ = ["ANSWERS", "DEFAULT_PAUSE", "EXHAUSTED", "NEARER", "Answer", "Nearer", "Reason", "Refusal", "Retry"]

# fmt: off
Reason: TypeAlias = Literal[
    "advice_disallowed", "advice_fraction", "advice_unreachable", "port", "host", "address", "name", "dial_refused",
    "dial_timeout", "token_missing", "token_invalid", "token_expired", "token_replayed", "client_rate",
    "tokens", "client_tunnels", "client_connections", "tunnels", "connections", "internal", "draining", "malformed",
    "method",
]
"""The words for why; "tokens" is that the replay store does not answer, "internal" an unexpected error of the proxy."""
# fmt: on

Nearer: TypeAlias = Literal["dns_timeout", "destination_ip_unroutable"]
"""Error types that say more than the one of their word."""

DEFAULT_PAUSE: Final = 5.0
"""Seconds until the proxy may be asked again, where nobody knows better."""

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Numbers of errors that say what this system lacks, and no other does: "connections", whatever was being tried."""


class Retry(enum.Enum):
    """What `Retry-After` says."""

    AT_ONCE = "0"
    LATER = "whole seconds, rounded up, at least one"
    UNSAID = "nothing: the request itself is wrong, and no time mends it"


class Answer(NamedTuple):
    """What a word is answered with."""

    status: int
    error: str
    """A proxy error type (RFC 9209, section 2.3)."""
    retry: Retry


ANSWERS: Final[Mapping[Reason, Answer]] = {
    "advice_disallowed": Answer(403, "http_request_denied", Retry.AT_ONCE),
    "advice_fraction": Answer(403, "http_request_denied", Retry.AT_ONCE),
    "advice_unreachable": Answer(403, "destination_unavailable", Retry.AT_ONCE),
    "port": Answer(403, "http_request_denied", Retry.AT_ONCE),
    "host": Answer(403, "http_request_denied", Retry.AT_ONCE),
    "address": Answer(403, "destination_ip_prohibited", Retry.AT_ONCE),
    "name": Answer(502, "dns_error", Retry.AT_ONCE),
    "dial_refused": Answer(502, "connection_refused", Retry.AT_ONCE),
    "dial_timeout": Answer(504, "connection_timeout", Retry.AT_ONCE),
    "token_missing": Answer(407, "http_request_denied", Retry.AT_ONCE),
    "token_invalid": Answer(407, "http_request_denied", Retry.AT_ONCE),
    "token_expired": Answer(407, "http_request_denied", Retry.AT_ONCE),
    "token_replayed": Answer(407, "http_request_denied", Retry.AT_ONCE),
    "tokens": Answer(503, "proxy_internal_error", Retry.LATER),
    "client_rate": Answer(429, "http_request_denied", Retry.LATER),
    "client_tunnels": Answer(429, "http_request_denied", Retry.LATER),
    "client_connections": Answer(429, "http_request_denied", Retry.LATER),
    "tunnels": Answer(503, "connection_limit_reached", Retry.LATER),
    "connections": Answer(503, "connection_limit_reached", Retry.LATER),
    "internal": Answer(503, "proxy_internal_error", Retry.LATER),
    "draining": Answer(503, "http_request_denied", Retry.LATER),
    "malformed": Answer(400, "http_request_error", Retry.UNSAID),
    "method": Answer(405, "http_request_error", Retry.UNSAID),
}
"""From each word to its answer."""

NEARER: Final[Mapping[Nearer, Answer]] = {
    "dns_timeout": Answer(504, "dns_timeout", Retry.AT_ONCE),
    "destination_ip_unroutable": Answer(502, "destination_ip_unroutable", Retry.AT_ONCE),
}
"""The answers where more is known."""

_INVALID: Final = 'Bearer realm="headgate", error="invalid_token"'
_MORE_FIELDS: Final[Mapping[Reason, tuple[str, str]]] = {
    "method": ("allow", "CONNECT"),  # 9110 15.5.6
    # 9110 11.7.1: a 407 has a challenge. 6750 3.1: to a request without a token it tells of no error.
    "token_missing": ("proxy-authenticate", 'Bearer realm="headgate"'),
    "token_invalid": ("proxy-authenticate", _INVALID),
    "token_expired": ("proxy-authenticate", _INVALID),
    "token_replayed": ("proxy-authenticate", _INVALID),
}


class Refusal(HeadgateError):
    """A CONNECT that is refused, as a value and as what is raised; `why` is a clause for the log, and for it alone.

    `pause` is the seconds until it is worth asking again, where the answer says any; `nearer` an error type that tells
    more than the word's own.
    """

    def __init__(
        self, reason: Reason, why: str = "", *, pause: float = DEFAULT_PAUSE, nearer: Nearer | None = None
    ) -> None:
        super().__init__(f"{reason}: {why}" if why else reason)
        self.reason: Final = reason
        self.why: Final = why
        self.answer: Final = ANSWERS[reason] if nearer is None else NEARER[nearer]
        self._pause = pause

    @property
    def retry_after(self) -> int | None:
        """The value of `Retry-After`, whole seconds; None where there is to be none."""
        if self.answer.retry is Retry.LATER:
            return max(1, whole_seconds(self._pause))
        return 0 if self.answer.retry is Retry.AT_ONCE else None

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The fields that say all this, names in lower case, as HTTP/2 has them (RFC 9113, section 8.2)."""
        details = sf_string(self.reason).decode()
        fields = [("proxy-status", f"headgate; error={self.answer.error}; details={details}")]
        if self.retry_after is not None:
            fields.append(("retry-after", str(self.retry_after)))
        if self.reason in _MORE_FIELDS:
            fields.append(_MORE_FIELDS[self.reason])
        return tuple(fields)

    @property
    def refused(self) -> Refused:
        """What a connection is told."""
        return Refused(status=self.answer.status, fields=self.fields, reason=self.reason)
