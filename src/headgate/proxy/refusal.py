"""Refusals of CONNECT requests: from one word for the reason to the status, `Retry-After` and `Proxy-Status`.

Browsers act on `Retry-After`: with 0 the refusal is about this origin only, and another may be requested at once; with
a number they leave the whole proxy alone for so long; without it they avoid the proxy for minutes, for every origin.
The same word is counted and logged.
"""

import enum
import errno
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from headgate.errors import HeadgateError
from headgate.http.date import whole_seconds
from headgate.http.fields import sf_string
from headgate.proxy.connect import RefusedConnect

# fmt: off
RefusalReason: TypeAlias = Literal[
    "advice_disallowed", "advice_fraction", "advice_unreachable", "port", "host", "address", "name", "dial_refused",
    "dial_timeout", "token_missing", "token_invalid", "token_expired", "token_replayed", "client_rate",
    "tokens", "client_tunnels", "client_connections", "tunnels", "connections", "internal", "draining", "malformed",
    "method",
]
"""Why a request is refused. "tokens": the table of used tokens cannot be asked; "internal": an unexpected error."""
# fmt: on

ProxyErrorType: TypeAlias = Literal["dns_timeout", "destination_ip_unroutable"]
"""Proxy error types that are more specific than the one of the reason."""

DEFAULT_RETRY_AFTER: Final = 5.0
"""Value of `Retry-After` if no better one is known."""

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Error numbers for resources that this machine lacks: the reason is "connections", whatever failed."""


class RetryAfter(enum.Enum):
    """Which `Retry-After` a refusal has."""

    AT_ONCE = "0"
    LATER = "whole seconds, rounded up, at least one"
    NONE = "none: the request itself is wrong, and waiting does not help"


class RefusalRule(NamedTuple):
    """How a refusal with one reason is answered."""

    status: int
    error: str
    """A proxy error type (RFC 9209, section 2.3)."""
    retry: RetryAfter


REFUSALS: Final[Mapping[RefusalReason, RefusalRule]] = {
    "advice_disallowed": RefusalRule(403, "http_request_denied", RetryAfter.AT_ONCE),
    "advice_fraction": RefusalRule(403, "http_request_denied", RetryAfter.AT_ONCE),
    "advice_unreachable": RefusalRule(403, "destination_unavailable", RetryAfter.AT_ONCE),
    "port": RefusalRule(403, "http_request_denied", RetryAfter.AT_ONCE),
    "host": RefusalRule(403, "http_request_denied", RetryAfter.AT_ONCE),
    "address": RefusalRule(403, "destination_ip_prohibited", RetryAfter.AT_ONCE),
    "name": RefusalRule(502, "dns_error", RetryAfter.AT_ONCE),
    "dial_refused": RefusalRule(502, "connection_refused", RetryAfter.AT_ONCE),
    "dial_timeout": RefusalRule(504, "connection_timeout", RetryAfter.AT_ONCE),
    "token_missing": RefusalRule(407, "http_request_denied", RetryAfter.AT_ONCE),
    "token_invalid": RefusalRule(407, "http_request_denied", RetryAfter.AT_ONCE),
    "token_expired": RefusalRule(407, "http_request_denied", RetryAfter.AT_ONCE),
    "token_replayed": RefusalRule(407, "http_request_denied", RetryAfter.AT_ONCE),
    "tokens": RefusalRule(503, "proxy_internal_error", RetryAfter.LATER),
    "client_rate": RefusalRule(429, "http_request_denied", RetryAfter.LATER),
    "client_tunnels": RefusalRule(429, "http_request_denied", RetryAfter.LATER),
    "client_connections": RefusalRule(429, "http_request_denied", RetryAfter.LATER),
    "tunnels": RefusalRule(503, "connection_limit_reached", RetryAfter.LATER),
    "connections": RefusalRule(503, "connection_limit_reached", RetryAfter.LATER),
    "internal": RefusalRule(503, "proxy_internal_error", RetryAfter.LATER),
    "draining": RefusalRule(503, "http_request_denied", RetryAfter.LATER),
    "malformed": RefusalRule(400, "http_request_error", RetryAfter.NONE),
    "method": RefusalRule(405, "http_request_error", RetryAfter.NONE),
}
"""The answer for each reason."""

SPECIFIC_ERRORS: Final[Mapping[ProxyErrorType, RefusalRule]] = {
    "dns_timeout": RefusalRule(504, "dns_timeout", RetryAfter.AT_ONCE),
    "destination_ip_unroutable": RefusalRule(502, "destination_ip_unroutable", RetryAfter.AT_ONCE),
}
"""The answers for more specific errors."""

_INVALID: Final = 'Bearer realm="headgate", error="invalid_token"'
_MORE_FIELDS: Final[Mapping[RefusalReason, tuple[str, str]]] = {
    "method": ("allow", "CONNECT"),  # 9110 15.5.6
    # 9110 11.7.1: a 407 has a challenge. 6750 3.1: for a request without a token it does not name an error.
    "token_missing": ("proxy-authenticate", 'Bearer realm="headgate"'),
    "token_invalid": ("proxy-authenticate", _INVALID),
    "token_expired": ("proxy-authenticate", _INVALID),
    "token_replayed": ("proxy-authenticate", _INVALID),
}


class Refusal(HeadgateError):
    """A refused request. `detail` is a clause for the log, never sent.

    `retry_after` is in seconds, for reasons that have one; `error_type` replaces the error type of the reason.
    """

    def __init__(
        self,
        reason: RefusalReason,
        detail: str = "",
        *,
        retry_after: float = DEFAULT_RETRY_AFTER,
        error_type: ProxyErrorType | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason: Final = reason
        self.detail: Final = detail
        self.error_type: Final = error_type
        self.rule: Final = REFUSALS[reason] if error_type is None else SPECIFIC_ERRORS[error_type]
        self._retry_after = retry_after

    @property
    def retry_after(self) -> int | None:
        """The value of `Retry-After` in whole seconds; None if there is none."""
        if self.rule.retry is RetryAfter.LATER:
            return max(1, whole_seconds(self._retry_after))
        return 0 if self.rule.retry is RetryAfter.AT_ONCE else None

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The response fields, names in lower case, as in HTTP/2 (RFC 9113, section 8.2)."""
        details = sf_string(self.reason).decode()
        fields = [("proxy-status", f"headgate; error={self.rule.error}; details={details}")]
        if self.retry_after is not None:
            fields.append(("retry-after", str(self.retry_after)))
        if self.reason in _MORE_FIELDS:
            fields.append(_MORE_FIELDS[self.reason])
        return tuple(fields)

    @property
    def refused(self) -> RefusedConnect:
        """The value that a connection is given."""
        return RefusedConnect(status=self.rule.status, fields=self.fields, reason=self.reason)
