"""The bytes of a token, and what is signed in them (docs/reference/token.md).

A head of 32 bytes and a signature over it, in base64 for URLs: a `token68` (RFC 9110, section 11.2), so that it can be
what follows `Bearer` (RFC 6750). How it is signed stands nowhere in it: that is its key's to say.
"""

import math
import struct
from typing import Final, NamedTuple

from headgate.token import base64url

__all__ = ["ID_LENGTH", "LONGEST_TOKEN", "Head", "is_bound", "joined", "signed", "split"]

LONGEST_TOKEN: Final = 128
"""Characters: a head and the longest signature that there is. What is longer is not looked into."""

ID_LENGTH: Final = 16
"""Random bytes in each token."""

_VERSION: Final = 1
_LEAD: Final = b"headgate token 1\0"
"""What stands before the signed bytes, so that nothing else that is signed with the key can be taken for a token."""

_HEAD: Final = struct.Struct(">BB8sHI16s")


class Head(NamedTuple):
    """What a token says."""

    is_bound: bool
    """Whether it is for one origin; which one is signed, and does not stand in the token."""
    key_id: bytes
    expires: float
    """Seconds since 1970, in whole milliseconds: from then on it is good for nothing."""
    identity: bytes
    """The key's id and the token's own random bytes: no two tokens have the same."""

    @property
    def raw(self) -> bytes:
        """The head's bytes. An instant with a fraction of a millisecond is rounded up."""
        milliseconds = math.ceil(self.expires * 1000)
        high, low = milliseconds >> 32, milliseconds & 0xFFFF_FFFF
        return _HEAD.pack(_VERSION, self.is_bound, self.key_id, high, low, self.identity[len(self.key_id) :])


def signed(head: bytes, origin: str) -> bytes:
    """Give what is signed: the head and, where that is bound, the serialised origin that the token is for."""
    return _LEAD + head + (origin.encode("utf-8", "replace") if head[1] else b"")


def joined(head: bytes, signature: bytes) -> str:
    """Write a token."""
    return base64url.encode(head + signature)


def is_bound(token: str) -> bool:
    """Say whether a text, be it genuine or not, has the form of a token for one origin."""
    parts = split(token)
    return parts is not None and parts[0].is_bound


def split(token: str) -> tuple[Head, bytes, bytes] | None:
    """Give a token's head, the head's bytes and the signature; None for what is no token, whoever signed it."""
    if len(token) > LONGEST_TOKEN:
        return None
    content = base64url.decode(token)
    if content is None or len(content) <= _HEAD.size:
        return None
    raw = content[: _HEAD.size]
    version, bound, key_id, high, low, token_id = _HEAD.unpack(raw)
    if version != _VERSION or bound > 1:
        return None
    return Head(bool(bound), key_id, (high << 32 | low) / 1000, key_id + token_id), raw, content[_HEAD.size :]
