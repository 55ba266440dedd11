"""All exceptions of headgate, in one tree.

::

    HeadgateError                one sentence: what is wrong, where, and what is expected
    ├── ConfigurationError       an invalid configuration file, flag or argument
    │   ├── RuleError            an invalid rule (also a ValueError)
    │   └── MissingExtra         an optional dependency is not installed (also an ImportError)
    ├── WireError                a malformed message, or one that does not fit its frames (also a ValueError)
    ├── ProtocolError            an HTTP/1 message that is malformed, ambiguous, too large or not served
    ├── LinkError                a socket of the bus cannot be bound or connected
    ├── BundleError              a malformed or unsupported bundle (also a ValueError)
    │   ├── FormatError          the bundle violates a step of the document
    │   │   └── ResponseError    one response does; the others remain valid
    │   └── VersionError         a bundle of an unknown version
    ├── FetchError               an HTTP response is missing, or not acceptable
    ├── RetryLater                a request was held and not sent (in a client, also an error of that library)
    └── NotInBundle              the bundle has no response for a URL (also a KeyError)

Every error that is shown to a user is one of these, and its text is complete.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar

__all__ = [
    "BundleError",
    "ConfigurationError",
    "FetchError",
    "FormatError",
    "HeadgateError",
    "LinkError",
    "MissingExtra",
    "RetryLater",
    "NotInBundle",
    "ProtocolError",
    "ResponseError",
    "RuleError",
    "VersionError",
    "WireError",
]


_OPENSSL = re.compile(r"^\[[^\]]*\] | \(_ssl\.c:\d+\)$")


class HeadgateError(Exception):
    """The base class of all exceptions that headgate raises on purpose.

    Each can be pickled and copied with its attributes, so that it can be sent from a worker to its parent process.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own method calls the class with `args`, which differ from the parameters of some classes here.
        return _restore, (type(self), self.args), self.__dict__


def _restore(cls: type[HeadgateError], args: tuple[Any, ...]) -> HeadgateError:
    """Create an error without calling its `__init__`; its attributes are restored afterwards."""
    error = cls.__new__(cls, *args)
    error.args = args  # OSError's `__new__` does not set them where a subclass has an `__init__`
    return error


class ConfigurationError(HeadgateError):
    """Invalid configuration file, flag or argument; the text says which, and what is expected."""


class RuleError(ConfigurationError, ValueError):
    """An invalid rule; the message contains the text and an example of a rule."""


class MissingExtra(ConfigurationError, ImportError):
    """An optional dependency is needed and not installed; the message names the extra to install."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the extra '{extra}'; install it from the repository: pip install '.[{extra}]'"
        )


class WireError(HeadgateError, ValueError):
    """A malformed message of the bus protocol, or a message that does not fit its frames."""


class ProtocolError(HeadgateError):
    """An HTTP/1 message that is malformed, ambiguous, too large or not served.

    `status` is the status to answer with (4xx or 505; 502 for a response), `reason` a clause without a full stop.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class LinkError(HeadgateError):
    """A socket of the bus cannot be bound or connected; the message contains the address."""


class BundleError(HeadgateError, ValueError):
    """A malformed or unsupported bundle (bundled-exchanges-01, 3.3 and 3.4)."""

    kind: ClassVar[str] = "format"
    """"format", "version" or "response", as `--json` prints it."""

    def __init__(self, reason: str, *, step: str, offset: int, fallback_url: str | None = None) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        """What is wrong, with the invalid value."""
        self.step = step
        """The steps of the document that fail, outermost first: "3.3 step 19.2", "3.3.1 step 1, 3.5.3 step 3"."""
        self.offset = offset
        """The position in bytes from the start of the file, stream or resource, including what precedes the bundle."""
        self.fallback_url = fallback_url
        """A URL to try instead; None before it is known (3.3 step 6), and in formats without one."""

    def __str__(self) -> str:
        instead = f"; try {self.fallback_url} instead" if self.fallback_url else ""
        return f"{self.reason} at byte {self.offset} ({self.step}){instead}"


class FormatError(BundleError):
    """The bundle violates a step of the document."""


class ResponseError(FormatError):
    """One response violates a step; the metadata and the other responses remain valid."""

    kind: ClassVar[str] = "response"


class VersionError(BundleError):
    """The version of the bundle is unknown."""

    kind: ClassVar[str] = "version"


class FetchError(HeadgateError):
    """An HTTP response is missing, or not acceptable; the message contains the URL."""

    retry_after: str = ""
    """The Retry-After of the response that caused the error; empty without a response or the field."""


class NotInBundle(HeadgateError, KeyError):
    """The bundle has no response for a URL, variant key or request."""

    __str__ = Exception.__str__  # that of KeyError puts the text in quotes


class RetryLater(HeadgateError):
    """A request was held and not sent: the target is in a no-contact period (anti-ddos-throttling.txt, section 4)."""

    def __init__(self, release_time: float, reason: str, target: str, now: float, url: str = "") -> None:
        # Not passed to the `__init__` of a library's class: each has other parameters.
        self.args = release_time, reason, target, now, url  # OSError does not set them
        self.release_time = release_time
        """The instant before which the request must not be sent: seconds since 1970, infinity for never.

        From then on it is not refused for the same hold, or the same rate. Advice and robots.txt are fetched again
        then, and may say the same again. For requests in flight there is no such instant; it is a second later."""
        self.reason = reason
        """Why it is held: "backoff", "retry-after", "rate-limit", "pace", "shared", "advice_disallowed",
        "advice_fraction", "advice_unreachable", "advice_pending", "robots_disallowed" or "robots_unreachable"."""
        self.target = target
        """What is held: a throttling target, a bucket (its path with `*` appended), or an origin."""
        self.now = now
        """The time of the decision: seconds since 1970."""
        self.url = url
        """The URL of the request."""

    def __str__(self) -> str:
        # Formatted on demand: most of these errors are caught and never shown.
        return f"{self.target} is held by {_REASONS.get(self.reason, self.reason)}; {self._when()}"

    def _when(self) -> str:
        wait = max(0.0, self.release_time - self.now)
        try:
            at = datetime.fromtimestamp(math.ceil(self.release_time), UTC)
        except (OverflowError, ValueError, OSError):
            return "do not retry"
        return f"retry at {at:%Y-%m-%dT%H:%M:%SZ}, in {wait:.1f} s"


_REASONS = {
    "backoff": "the backoff after its failures",
    "retry-after": "its Retry-After",
    "shared": "a server's answer to another process",
    "pace": "the pace of this agent",
    "rate-limit": "its rate limit, of which nothing remains",
    "advice_disallowed": "its traffic advice, which disallows all traffic",
    "advice_fraction": "its traffic advice, which admits only a fraction of requests; this one was not selected",
    "advice_unreachable": "the Retry-After of its traffic advice response",
    "advice_pending": "its traffic advice or robots.txt, which has not been fetched yet",
    "robots_disallowed": "its robots.txt",
    "robots_unreachable": "its robots.txt, which cannot be fetched",
}


def fail_if(condition: object, message: str) -> None:
    """Raise `ConfigurationError` with a message if a condition holds."""
    if condition:
        raise ConfigurationError(message)


def fail_any(*rules: tuple[object, str]) -> None:
    """Raise `ConfigurationError` with the message of the first rule whose condition holds."""
    for condition, message in rules:
        fail_if(condition, message)


def check_seconds(name: str, value: object) -> None:
    """Raise `ConfigurationError`, which names the argument, unless `value` is a non-negative number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= 0:
        raise ConfigurationError(f"{name} must be a non-negative number of seconds, got {value!r:.80}")


def check_count(name: str, value: object, least: int = 0) -> None:
    """Raise `ConfigurationError`, which names the argument, unless `value` is an integer from `least` on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} must be an integer of at least {least}, got {value!r:.80}")


def reason_of(error: BaseException | str) -> str:
    """Return the reason that the system or OpenSSL gives, without numbers: No such file or directory."""
    reason = _OPENSSL.sub("", getattr(error, "strerror", None) or str(error))
    return "not a PEM file of the expected kind" if reason == "PEM lib" else reason


@contextmanager
def explaining(what: str, advice: str) -> Iterator[None]:
    """Raise `ConfigurationError` for an error of the system that is raised inside: what failed, its reason, advice."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a path contains a NUL
        raise ConfigurationError(f"{what}: {reason_of(error)}; {advice}") from None


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put the name of a flag, key or domain before the text of a `ConfigurationError` that is raised inside."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from None
