"""Every exception of headgate, in one tree.

::

    HeadgateError                one sentence: what, where, and what next
    ├── ConfigurationError       the operator's words are off: a file, a flag, an argument
    │   ├── RuleError            a rule that is not one (also a ValueError)
    │   └── MissingExtra         an optional dependency is not installed (also an ImportError)
    ├── WireError                frames that are no message, or a message that fits no frames (also a ValueError)
    ├── LinkError                a socket of the bus cannot be had
    ├── BundleError              bytes that are no bundle, or not one we may read (also a ValueError)
    │   ├── FormatError          they break a step of the document
    │   │   └── ResponseError    one response does; the others are none the worse
    │   └── VersionError         a bundle of a version nobody here knows
    ├── FetchError               what was asked for over HTTP cannot be had, or not be trusted
    └── NotInBundle              the bundle has no response for that (also a LookupError)

Whatever reaches a person is one of these, and its text alone tells them what to do.
"""

from typing import ClassVar

__all__ = [
    "BundleError",
    "ConfigurationError",
    "FetchError",
    "FormatError",
    "HeadgateError",
    "LinkError",
    "MissingExtra",
    "NotInBundle",
    "ResponseError",
    "RuleError",
    "VersionError",
    "WireError",
]


class HeadgateError(Exception):
    """The root: catching it catches all that headgate raises on purpose."""


class ConfigurationError(HeadgateError):
    """The operator's words are off; the text names the file, flag or argument and what would be right."""


class RuleError(ConfigurationError, ValueError):
    """A text that is not a rule; the message quotes it and shows one that works."""


class MissingExtra(ConfigurationError, ImportError):
    """An optional dependency is asked for and not installed; the message names the extra to install."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the extra '{extra}'; install it with: pip install 'headgate[{extra}]'")


class WireError(HeadgateError, ValueError):
    """Frames that are no message of the protocol, or a message that does not fit its frames."""


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
        """Where: bytes from the first byte of the bundle."""
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


class NotInBundle(HeadgateError, LookupError):
    """The bundle holds no response for that URL, variant key or request."""
