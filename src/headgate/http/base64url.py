"""Base64url without padding (RFC 4648, section 5), as keys and tokens are written."""

import base64


def encode_base64url(content: bytes) -> str:
    """Encode bytes as base64url without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def decode_base64url(text: str) -> bytes | None:
    """Decode base64url without padding; None for malformed text and for a non-canonical encoding."""
    try:
        content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    # Python's decoder skips characters outside the alphabet and ignores unused bits of the last character.
    return content if encode_base64url(content) == text else None
