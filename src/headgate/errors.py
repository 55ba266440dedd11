"""Every exception of headgate, in one tree.

::

    HeadgateError                one sentence: what, where, and what next
    ├── ConfigurationError       the operator's words are off: a file, a flag, an argument
    │   ├── RuleError            a rule that is not one (also a ValueError)
    │   └── MissingExtra         an optional dependency is not installed (also an ImportError)
    ├── WireError                frames that are no message, or a message that fits no frames (also a ValueError)
    ├── ProtocolError            an HTTP/1 message that is malformed, ambiguous, too large or not served
    ├── LinkError                a socket of the bus cannot be had
    ├── BundleError              bytes that are no bundle, or not one we may read (also a ValueError)
    │   ├── FormatError          they break a step of the document
    │   │   └── ResponseError    one response does; the others are none the worse
    │   └── VersionError         a bundle of a version nobody here knows
    ├── FetchError               what was asked for over HTTP cannot be had, or not be trusted
    ├── NoContact                a request was held, and not sent (in a client, also that library's own error)
    └── NotInBundle              the bundle has no response for that (also a LookupError)

Whatever reaches a person is one of these, and its text alone tells them what to do.
"""

import math
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
    "NoContact",
    "NotInBundle",
    "ProtocolError",
    "ResponseError",
    "RuleError",
    "VersionError",
    "WireError",
]


class HeadgateError(Exception):
    """The root: catching it catches all that headgate raises on purpose.

    Each can be pickled and copied, so that it reaches the parent of a worker process, with all its attributes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own calls the class with `args`, which are not what every class here is made with.
        return _restore, (type(self), self.args), self.__dict__


def _restore(cls: type[HeadgateError], args: tuple[Any, ...]) -> HeadgateError:
    """Make an error without calling its `__init__`; its attributes follow."""
    error = cls.__new__(cls, *args)
    error.args = args  # OSError's `__new__` does not set them where a subclass has an `__init__`
    return error


class ConfigurationError(HeadgateError):
    """The operator's words are off; the text names the file, flag or argument and what would be right."""


class RuleError(ConfigurationError, ValueError):
    """A text that is not a rule; the message quotes it and shows one that works."""


class MissingExtra(ConfigurationError, ImportError):
    """An optional dependency is asked for and not installed; the message names the extra to install."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the extra '{extra}'; install it in a checkout of headgate: pip install '.[{extra}]'"
        )


class WireError(HeadgateError, ValueError):
    """Frames that are no message of the protocol, or a message that does not fit its frames."""


class ProtocolError(HeadgateError):
    """An HTTP/1 message that is malformed, ambiguous, too large or not served.

    `status` is what a server answers (4xx or 505; 502 for a response), `reason` why: a clause without a full stop.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class LinkError(HeadgateError):
    """A socket of the bus cannot be bound or connected; the message names the address."""


class BundleError(HeadgateError, ValueError):
    """Bytes that are no bundle, or not one we may read (bundled-exchanges-01, 3.3 and 3.4)."""

    kind: ClassVar[str] = "format"
    """"format", "version" or "response": the word that `--json` prints."""

    def __init__(self, reason: str, *, step: str, offset: int, fallback_url: str | None = None) -> None:
        super().__init__(reason, step, offset)
        self.reason = reason
        """What is wrong, with the offending value."""
        self.step = step
        """The steps of the document that refuse it, outermost first: "3.3 step 19.2", "3.3.1 step 1, 3.5.3 step 3"."""
        self.offset = offset
        """Where: bytes from the first byte of the file, stream or resource; what precedes the bundle there counts."""
        self.fallback_url = fallback_url
        """A URL to try instead; None before it is known (3.3 step 6), and where the format has none."""

    def __str__(self) -> str:
        instead = f"; try {self.fallback_url} instead" if self.fallback_url else ""
        return f"{self.reason} at byte {self.offset} ({self.step}){instead}"


class FormatError(BundleError):
    """The bytes break a step of the document."""


class ResponseError(FormatError):
    """One response breaks a step; the metadata and the other responses are none the worse."""

    kind: ClassVar[str] = "response"


class VersionError(BundleError):
    """The bundle is of a version that is not known here."""

    kind: ClassVar[str] = "version"


class FetchError(HeadgateError):
    """What was asked for over HTTP cannot be had, or not be trusted; the message names the URL."""

    retry_after: str = ""
    """The Retry-After of the answer that is the reason; empty where it had none, or where there was no answer."""


class NotInBundle(HeadgateError, LookupError):
    """The bundle holds no response for that URL, variant key or request."""


class NoContact(HeadgateError):
    """A request was held, and not sent: the target is in a no-contact period (anti-ddos-throttling.txt, section 4)."""

    def __init__(self, release_time: float, reason: str, target: str, now: float) -> None:
        # Not handed on to a library's own class: each has another idea of what it is made with.
        self.args = release_time, reason, target, now  # an OSError would not keep them
        self.release_time = release_time
        """The instant before which the request must not go: seconds since 1970, infinite where that is never."""
        self.reason = reason
        """Who holds it: "backoff", "retry-after", "retry_budget", "advice_disallowed", "advice_fraction",
        "advice_unreachable" or "advice_pending"."""
        self.target = target
        """What is held: a throttling target, a bucket with `*` behind its path, or an origin."""
        self.now = now
        """When it was held: seconds since 1970."""

    def __str__(self) -> str:
        # Written only for whoever looks: most of these are raised to be caught.
        return f"{self.target} is held by {_HOLDERS.get(self.reason, self.reason)}; {self._when()}"

    def _when(self) -> str:
        wait = max(0.0, self.release_time - self.now)
        try:
            at = datetime.fromtimestamp(math.ceil(self.release_time), UTC)
        except (OverflowError, ValueError, OSError):
            return "do not ask again"
        return f"ask again at {at:%Y-%m-%dT%H:%M:%SZ}, in {wait:.1f} s"


_HOLDERS = {
    "backoff": "the backoff after its failures",
    "retry-after": "its Retry-After",
    "retry_budget": "its retry budget, which is spent",
    "advice_disallowed": "its traffic advice, which disallows all traffic",
    "advice_fraction": "its traffic advice, which wants a fraction that this request is not of",
    "advice_unreachable": "the Retry-After it answered to the question for its traffic advice",
    "advice_pending": "its traffic advice, which is not known yet",
}
