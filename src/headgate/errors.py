"""Every exception of headgate, in one tree.

::

    HeadgateError                one sentence: what, where, and what next
    ├── ConfigurationError       the operator's words are off: a file, a flag, an argument
    │   ├── RuleError            a rule that is not one (also a ValueError)
    │   └── MissingExtra         an optional dependency is not installed (also an ImportError)
    ├── WireError                frames that are no message, or a message that fits no frames (also a ValueError)
    └── LinkError                a socket of the bus cannot be had

Whatever reaches a person is one of these, and its text alone tells them what to do.
"""

__all__ = ["ConfigurationError", "HeadgateError", "LinkError", "MissingExtra", "RuleError", "WireError"]


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
