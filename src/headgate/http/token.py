"""Tokens: field names and methods (RFC 9110, section 5.6.2)."""

import re

__all__ = ["is_token"]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def is_token(text: str) -> bool:
    """Return whether `text` is a token."""
    return _TOKEN.fullmatch(text) is not None
