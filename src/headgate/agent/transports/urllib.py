"""A handler for openers of the standard library that sends a request when its `Attempt` says so, and not before.

It comes after the handlers of proxies and before those that open connections. Each hop of a redirect and each step of
an authentication is a request of its own to an opener, and comes here. Exceptions for a status of 400 and more are
raised later, so every response is seen here.
"""

from typing import Any
from urllib.error import URLError
from urllib.request import BaseHandler, Request

from headgate.agent.courtesy import Courtesy
from headgate.agent.fetch import in_thread
from headgate.agent.fetch.urllib import AdviceMessage, fetch_with
from headgate.agent.transports.options import is_interactive
from headgate.errors import NoContact


class Held(NoContact, URLError):  # type: ignore[misc]  # an URLError's reason may be an exception; ours is always a text
    """A request was held, and not sent."""


class Handler(BaseHandler):
    """For `urllib.request.build_opener(Handler(courtesy))`, alone or among other handlers in any order.

    Those that send, such as an `HTTPSHandler` with a TLS context of one's own, are asked behind this one, if their
    `handler_order` is above its own, as it is by default; a handler that answers requests itself, such as a cache,
    belongs below it, and its responses are not counted. A request that is held raises `Held`, which is both
    `NoContact` and `URLError`, and is not sent. The time for which it waits does not count for its timeout.

    A `Request` whose attribute `headgate` is `{"interactive": True}` is one that a user waits for. One is sent again
    only if its data are bytes. An opener shares no handlers with another.
    """

    handler_order = 490
    """Its place: proxies have 100, and handlers that open connections 500."""

    def __init__(self, courtesy: Courtesy) -> None:
        self._courtesy = courtesy
        self._start_fetch = in_thread(lambda advice: fetch_with(self.parent, advice, skipped=Handler))

    def http_open(self, request: Request) -> Any:
        """Open a request as soon as it may go; raises `Held` where that is too late."""
        if isinstance(request, AdviceMessage):
            return None  # a proxy's handler had the opener open it
        attempt = self._courtesy.attempt(
            request.get_method(),
            request.full_url,  # also that of a request which a proxy is sent
            interactive=is_interactive(getattr(request, "headgate", None)),
            repeatable=request.data is None or isinstance(request.data, bytes),
            refusal=Held,
            start_fetch=None if not self._courtesy.fetches_advice else self._start_fetch,
        )
        while True:
            while (wait := attempt.wait()) is not None:
                wait.block()
            with attempt:
                response = self._opened(request)
            if response is None or getattr(response, "from_cache", False):
                return response
            try:
                if attempt.received(response.status, response.headers.items()):
                    return response
            except BaseException:
                response.close()
                raise
            response.close()

    https_open = http_open

    def _opened(self, request: Request) -> Any:
        """Ask the handlers behind this one, as the opener would have."""
        openers: Any = self.parent
        handlers = openers.handle_open[request.type]
        for handler in handlers[handlers.index(self) + 1 :]:
            response = getattr(handler, f"{request.type}_open")(request)
            if response is not None:
                return response
        return None
