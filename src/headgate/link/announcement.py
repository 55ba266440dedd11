"""Announcements of masters that have started without a history, and the topics of the accounting re-sent to them.

This module opens no socket. Such a master subscribes to a topic that no domain can have, with digits that it drew at
its start. Gatekeepers re-send recent accounting to each new topic of that kind once (docs/reference/wire.md).
"""

import re

from headgate.errors import ConfigurationError
from headgate.limit.messages import domain_of, topic

NEW_MASTER = b"\0headgate.new.1\0"
"""The prefix of every announcement. No domain has it, since "domains should not contain nulls in their names"."""

_ANNOUNCEMENT = re.compile(re.escape(NEW_MASTER) + rb"[0-9a-f]{16}\0")
_SIZE = len(NEW_MASTER) + 17


def announcement(identity: str) -> bytes:
    """Return the topic that a new master subscribes to. Raises `ConfigurationError` unless `identity` is 16 hex digits.

    The digits are random, so that no two masters have the same.
    """
    frame = NEW_MASTER + identity.encode() + b"\0"
    if not is_announcement(frame):
        raise ConfigurationError(f"invalid identity {identity!r}; expected 16 hexadecimal digits in lower case")
    return frame


def is_announcement(prefix: bytes) -> bool:
    """Return whether a subscription announces a new master."""
    return _ANNOUNCEMENT.fullmatch(prefix) is not None


def resent_topic(announced: bytes, domain: str) -> bytes:
    """Return the first frame of a batch that is re-sent to the master which announced itself by `announced`."""
    return announced + topic(domain)


def split_resent_topic(frame: bytes) -> tuple[bytes, str]:
    """Return the announcement and the domain of a re-sent batch; two empty values for any other frame."""
    announced = frame[:_SIZE]
    return (announced, domain_of(frame[_SIZE:])) if is_announcement(announced) else (b"", "")
