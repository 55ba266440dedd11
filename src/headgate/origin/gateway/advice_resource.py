"""The traffic advice of a gateway: what it answers at the path of the document, and to whom.

The document may be replaced at any time. Each response that gives an agent the document is recorded, where a controller
needs that: an agent obeys what it was served until that is stale, so the fraction in force follows from these records.
A 304 is such a response, since the agent renews what it has; a response to HEAD is not.
"""

import hashlib
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from headgate.advice import MEDIA_TYPE, PATH
from headgate.http.conditional import Validators, apply_preconditions
from headgate.http.h1 import RequestHead
from headgate.origin.gateway.fetch_bound import FetchBound
from headgate.origin.response import Response, problem

ADVICE_PATH: Final = PATH.encode()
"""Where agents fetch traffic advice (traffic-advice.txt, section 10.1)."""
STATIC_MAX_AGE: Final = 1_800.0
"""Seconds for which agents may use a document that is not computed."""
MAX_FETCHES: Final = 10_000
"""Maximum fetches that are recorded between two reports; further ones are served without a record."""

_SAFE: Final = frozenset({b"GET", b"HEAD"})
_REFUSED: Final = {
    429: ("Too Many Requests", "This address has fetched the traffic advice too often."),
    503: ("Service Unavailable", "Too many agents fetch the traffic advice."),
}
_MAX_USER_AGENT: Final = 200
"""Bytes of a User-Agent that are recorded."""


class AdviceFetch(NamedTuple):
    """A fetch of the document by an agent."""

    address: bytes
    """The agent's address, or its network."""
    user_agent: bytes
    """The first bytes of its User-Agent: the brand name, from an agent that follows the document."""
    serial: int
    """The number of the document that it was served."""


class AdviceResource:
    """Answers requests for the document, which is `serial` among those of its controller, and fresh for `max_age`.

    `is_computed` keeps shared caches in front of the gate from storing the document, so that each agent's own fetch is
    served and recorded here, and no agent gets an older document than the one that is published. Such fetches are
    bounded.
    """

    def __init__(
        self,
        document: bytes,
        *,
        max_age: float = STATIC_MAX_AGE,
        serial: int = 0,
        is_computed: bool = False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._is_computed = is_computed
        self._bound = FetchBound(max_age, draw)
        self._fetches: list[AdviceFetch] = []
        self.publish(document, max_age=max_age, serial=serial)

    def publish(self, document: bytes, *, max_age: float, serial: int) -> None:
        """Replace the document."""
        etag = b'"%b"' % hashlib.sha256(document).hexdigest()[:32].encode()
        self._serial = serial
        self._document = document
        self._validators = Validators(etag, None)
        self._fields = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"max-age=%d" % max_age),
            (b"etag", etag),
        ]
        if self._is_computed:
            # RFC 9213: for shared caches of the operator. `private` would forbid a prefetch proxy to store it.
            self._fields.append((b"cdn-cache-control", b"no-store"))
        self._whole = Response(200, [*self._fields, (b"content-length", b"%d" % len(document))], document)

    @staticmethod
    def is_for(request: RequestHead) -> bool:
        """Return whether a request is for the document."""
        # One comparison is enough for nearly all requests.
        return request.target.startswith(ADVICE_PATH) and request.path == ADVICE_PATH and request.method in _SAFE

    def respond(self, request: RequestHead, address: bytes, *, now: float) -> Response:
        """Answer a request for the document, from an agent at `address`."""
        if self._is_computed:
            refusal = self._bound.refusal(address, now=now)
            if refusal is not None:
                response = problem(refusal.status, *_REFUSED[refusal.status])
                response.fields.append((b"retry-after", b"%d" % refusal.retry_after))
                return response
            if request.method == b"GET" and len(self._fetches) < MAX_FETCHES:
                user_agent = b", ".join(request.values(b"user-agent"))[:_MAX_USER_AGENT]
                self._fetches.append(AdviceFetch(address, user_agent, self._serial))
        tags = request.values(b"if-none-match")
        if not tags:
            return self._whole
        conditions = [(b"if-none-match", tag) for tag in tags]
        size = len(self._document)
        found = apply_preconditions(request.method, conditions, (200, self._fields), self._validators, size)
        return self._whole if found.status == 200 else Response(found.status, found.fields, b"")

    def take_fetches(self) -> list[AdviceFetch]:
        """Return the fetches since the last call."""
        fetches, self._fetches = self._fetches, []
        return fetches
