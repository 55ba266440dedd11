"""Which tokens were used: a hash table of fixed size in a buffer that the caller provides.

The buffer may be memory that several processes share; the caller then holds a lock during each call. An entry is kept
until its token expires, and its slot may be reused afterwards. Without a free slot the answer is "tokens" (unknown),
never that the token is new. Numbers are in the machine's byte order, so a table cannot move to another machine.
"""

from typing import Final, Literal

from headgate.token.keys import KEY_ID_SIZE
from headgate.token.signed_token import TOKEN_ID_SIZE, ValidToken

MAX_TOKENS: Final = 200_000
"""Default number of tokens remembered at a time: 13 MB, of which the system allocates only the pages in use."""

_BUCKET_SLOTS: Final = 64
"""A token is searched for in one bucket only."""
_IDENTITY_SIZE: Final = KEY_ID_SIZE + TOKEN_ID_SIZE
_EXPIRY_SIZE: Final = 8
_HEADER_SIZE: Final = 64
_BUCKET_SIZE: Final = _BUCKET_SLOTS * (_EXPIRY_SIZE + _IDENTITY_SIZE)


def table_size(max_tokens: int) -> int:
    """Return the bytes of a table for `max_tokens` at a time.

    It has twice as many slots, because buckets fill unevenly: at `max_tokens`, one token in ten million finds its
    bucket full.
    """
    return _HEADER_SIZE + max(1, -(-2 * max_tokens // _BUCKET_SLOTS)) * _BUCKET_SIZE


class ReplayTable:
    """The used tokens, in a writable buffer of `table_size` bytes that was created as zeros."""

    def __init__(self, buffer: memoryview) -> None:
        self._bucket_count = (len(buffer) - _HEADER_SIZE) // _BUCKET_SIZE
        slots = self._bucket_count * _BUCKET_SLOTS
        numbers = buffer[: _HEADER_SIZE + slots * _EXPIRY_SIZE].cast("Q")
        self._forgotten_until = numbers[:1]
        """Latest expiry among overwritten entries, in milliseconds: tokens that expire by then may have been used. It
        is in the past, and matters only if the clock is set back."""
        self._expiries = numbers[_HEADER_SIZE // _EXPIRY_SIZE :]
        self._identities = buffer[_HEADER_SIZE + slots * _EXPIRY_SIZE :][: slots * _IDENTITY_SIZE]

    def consume(self, valid: ValidToken, *, now: float) -> Literal["token_replayed", "token_expired", "tokens"] | None:
        """Consume a token; return None the first time, otherwise why the token is refused."""
        identity, expires = valid.identity, round(valid.expires * 1000)
        if expires <= self._forgotten_until[0]:
            return "token_expired"
        bucket = int.from_bytes(identity[KEY_ID_SIZE : KEY_ID_SIZE + 8]) % self._bucket_count
        first = bucket * _BUCKET_SLOTS
        if _contains(self._identities[first * _IDENTITY_SIZE : (first + _BUCKET_SLOTS) * _IDENTITY_SIZE], identity):
            return "token_replayed"
        expiries = self._expiries[first : first + _BUCKET_SLOTS].tolist()
        earliest = min(expiries)
        if earliest > now * 1000:
            return "tokens"
        slot = first + expiries.index(earliest)
        self._forgotten_until[0] = max(self._forgotten_until[0], earliest)
        # The identity first: if the process is killed in between, the slot still counts as expired.
        self._identities[slot * _IDENTITY_SIZE : (slot + 1) * _IDENTITY_SIZE] = identity
        self._expiries[slot] = expires
        return None

    def release(self) -> None:
        """Release the buffer."""
        for view in (self._forgotten_until, self._expiries, self._identities):
            view.release()


def _contains(bucket: memoryview, identity: bytes) -> bool:
    identities = bytes(bucket)
    found = identities.find(identity)
    while found % _IDENTITY_SIZE and found >= 0:
        found = identities.find(identity, found + 1)
    return found >= 0
