"""Which tokens have been shown: a table of a fixed size in bytes that somebody else owns.

Those may be memory that several processes share: then whoever calls holds a lock meanwhile. An entry is needed until
its token expires, and its place may be taken from then on. Where there is no place, the answer is that nobody can tell,
never that the token is new. Numbers are in the machine's own order: a table is not for another machine.
"""

from typing import Final, Literal

from headgate.token.checking import Valid

__all__ = ["MOST_TOKENS", "ReplayTable", "table_size"]

MOST_TOKENS: Final = 200_000
"""Tokens that are remembered at a time, unless more are allowed: 13 MB, of which only what is used is taken."""

_PLACES: Final = 64
"""In each bucket; one bucket is all that is looked at for a token."""
_IDENTITY: Final = 24
_KEY_ID: Final = 8
_INSTANT: Final = 8
_HEADER: Final = 64
_BUCKET: Final = _PLACES * (_INSTANT + _IDENTITY)


def table_size(most: int) -> int:
    """Give the bytes of a table for `most` tokens at a time.

    It has twice as many places, since buckets do not fill alike: with so many tokens in it, one in ten million finds
    its bucket full.
    """
    return _HEADER + max(1, -(-2 * most // _PLACES)) * _BUCKET


class ReplayTable:
    """The tokens that were shown, in a writable buffer of `table_size` bytes that began as zeros."""

    def __init__(self, buffer: memoryview) -> None:
        self._buckets = (len(buffer) - _HEADER) // _BUCKET
        places = self._buckets * _PLACES
        instants = buffer[: _HEADER + places * _INSTANT].cast("Q")
        self._floor = instants[:1]
        """Up to when an entry has been overwritten, in milliseconds: of tokens that expired by then nothing is known.
        It is past, and only a clock that is put back makes it matter."""
        self._instants = instants[_HEADER // _INSTANT :]
        self._identities = buffer[_HEADER + places * _INSTANT :][: places * _IDENTITY]

    def use(self, valid: Valid, *, now: float) -> Literal["token_replayed", "token_expired", "tokens"] | None:
        """Use a token up; None where it had not been, else why it opens nothing."""
        identity, expires = valid.identity, round(valid.expires * 1000)
        if expires <= self._floor[0]:
            return "token_expired"
        first = int.from_bytes(identity[_KEY_ID : _KEY_ID + 8]) % self._buckets * _PLACES
        if _is_among(identity, bytes(self._identities[first * _IDENTITY : (first + _PLACES) * _IDENTITY])):
            return "token_replayed"
        instants = self._instants[first : first + _PLACES].tolist()
        earliest = min(instants)
        if earliest > now * 1000:
            return "tokens"
        place = first + instants.index(earliest)
        self._floor[0] = max(self._floor[0], earliest)
        # In this order, so that whoever is killed in between has not made an entry out of two tokens' halves.
        self._identities[place * _IDENTITY : (place + 1) * _IDENTITY] = identity
        self._instants[place] = expires
        return None

    def release(self) -> None:
        """Let go of the buffer."""
        for view in (self._floor, self._instants, self._identities):
            view.release()


def _is_among(identity: bytes, identities: bytes) -> bool:
    found = identities.find(identity)
    while found % _IDENTITY and found >= 0:
        found = identities.find(identity, found + 1)
    return found >= 0
