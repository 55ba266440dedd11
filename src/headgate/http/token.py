"""Tokens: what a field's name and a method are made of (RFC 9110, section 5.6.2)."""

import re

__all__ = ["is_token"]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def is_token(text: str) -> bool:
    """Say whether a field or a method can be called `text`."""
    return _TOKEN.fullmatch(text) is not None
