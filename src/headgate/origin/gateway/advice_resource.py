"""The traffic advice of a gateway: what it answers at the path of the document, which may be replaced at any time."""

import hashlib
from typing import Final

from headgate.advice import MEDIA_TYPE, PATH
from headgate.http.conditional import Validators, apply_preconditions
from headgate.http.h1 import RequestHead
from headgate.origin.response import Response

ADVICE_PATH: Final = PATH.encode()
"""Where agents fetch traffic advice (traffic-advice.txt, section 10.1)."""
STATIC_MAX_AGE: Final = 1_800.0
"""Seconds for which agents may use a document that is not computed."""
_SAFE: Final = frozenset({b"GET", b"HEAD"})


class AdviceResource:
    """Answers requests for the document, which is fresh for `max_age`.

    `is_computed` keeps shared caches in front of the gate from storing it, so that no agent gets an older document than
    the one that is published.
    """

    def __init__(self, document: bytes, *, max_age: float = STATIC_MAX_AGE, is_computed: bool = False) -> None:
        self._is_computed = is_computed
        self.publish(document, max_age=max_age)

    def publish(self, document: bytes, *, max_age: float) -> None:
        """Replace the document."""
        etag = b'"%b"' % hashlib.sha256(document).hexdigest()[:32].encode()
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

    def respond(self, request: RequestHead) -> Response:
        """Answer a request for the document."""
        tags = request.values(b"if-none-match")
        if not tags:
            return self._whole
        conditions = [(b"if-none-match", tag) for tag in tags]
        size = len(self._document)
        found = apply_preconditions(request.method, conditions, (200, self._fields), self._validators, size)
        return self._whole if found.status == 200 else Response(found.status, found.fields, b"")
