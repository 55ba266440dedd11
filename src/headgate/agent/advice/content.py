"""A body without its content codings, which stays within its bound and its time whatever it unpacks to."""

from contextlib import suppress
from typing import Final

from headgate.agent.advice.deadline import Deadline
from headgate.agent.advice.response import Broken
from headgate.errors import MissingExtra
from headgate.http.lists import Pairs, lines_of, split

__all__ = ["MOST_CODINGS", "content"]

MOST_CODINGS: Final = 8
"""Codings on top of each other; nobody has use for more than two."""


def content(body: bytes, fields: Pairs, *, most: int, deadline: Deadline) -> bytes:
    """Undo the content codings of a body; one that is unknown here is left, as Fetch has it.

    Raises `Broken` where a coding is damaged, cut, or stands for more than `most` bytes, and `TimeoutError`.
    """
    codings = [coding.lower() for coding in split(lines_of(fields, "content-encoding"))]
    if len(codings) > MOST_CODINGS:
        raise Broken(f"more than {MOST_CODINGS} content codings")
    for coding in reversed(codings):
        body = _undone(body, coding, most, deadline)
    return body


def _undone(body: bytes, coding: str, most: int, deadline: Deadline) -> bytes:
    from headgate.bundle.sources.codings import READABLE, Undecodable

    # However the body begins: what is not in its coding, in one of the coding's forms, is damaged.
    for _, form in READABLE.get(coding, ()):
        try:
            decompressor = form()
        except MissingExtra:
            return body
        plain = bytearray()
        with suppress(Undecodable):
            for step in decompressor.decompress(body):
                deadline.left()
                plain += step
                if len(plain) > most:
                    raise Broken(f"longer than {most} bytes")
            if decompressor.is_whole():
                return bytes(plain)
    if READABLE.get(coding):
        raise Broken(f"it is not {coding}, or not all of it")
    return body
