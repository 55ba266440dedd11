"""Base64 for URLs without padding (RFC 4648, section 5), in the one spelling that each sequence of bytes has."""

import base64

__all__ = ["decode", "encode"]


def encode(content: bytes) -> str:
    """Write bytes."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes | None:
    """Read what `encode` writes; None for everything else, other spellings of the same bytes included."""
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    # Python's reader skips strange characters, and bits that are left over in the last one.
    return content if encode(content) == text else None
