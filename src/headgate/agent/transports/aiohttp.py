"""A client middleware for aiohttp that sends a request when its `Attempt` says so, and not before.

A session passes each hop of a redirect through its middlewares as a request of its own, and what it sends again since a
connection proved dead. Nothing of a response's body is read here, unless its request is sent again.
"""

import asyncio
from functools import partial

from headgate.agent.courtesy import Courtesy
from headgate.agent.fetch import in_task
from headgate.agent.transports.refused_body import MAX_READ_SIZE, READ_TIMEOUT
from headgate.errors import MissingExtra, NoContact

try:
    import aiohttp
except ImportError:
    raise MissingExtra("aiohttp", "headgate.agent.aiohttp") from None

# It imports aiohttp too.
from headgate.agent.fetch.aiohttp import fetch_beside


class Held(NoContact, aiohttp.ClientError):
    """A request was held, and not sent."""


class Middleware:
    """For `ClientSession(middlewares=[Middleware(courtesy)])`, last among others, so that it sees what they send.

    A request that is held raises `Held`, which is both `NoContact` and `aiohttp.ClientError`, and is not sent.
    What it waits for is part of its total timeout, and of no other.

    Requests given a middleware of their own that is `interactive`, as in `session.get(url, middlewares=[...])`, are
    ones that a user waits for. One is sent again only if its body was given whole: as bytes, text, a form of texts or
    JSON; and not if it asks the server to continue. A session with a cache, such as aiohttp-client-cache's, has it in
    front of this.
    """

    def __init__(self, courtesy: Courtesy, *, interactive: bool = False) -> None:
        self._courtesy = courtesy
        self._interactive = interactive

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request as soon as it may go; raises `Held` where that is too late."""
        attempt = self._courtesy.attempt(
            request.method,
            str(request.url),
            interactive=self._interactive,
            repeatable=_is_repeatable(request),
            refusal=Held,
            start_fetch=None if not self._courtesy.fetches_advice else in_task(partial(fetch_beside, request)),
        )
        while True:
            while (wait := attempt.wait()) is not None:
                await wait.settle()
            with attempt:
                response = await handler(request)
            try:
                if getattr(response, "from_cache", False) or attempt.received(response.status, response.headers):
                    return response
            except BaseException:
                response.close()
                raise
            await _let_go(response)


def _is_repeatable(request: aiohttp.ClientRequest) -> bool:
    # The client has waited once for "100 Continue", and would wait for it again in vain.
    return isinstance(request.body, bytes | aiohttp.BytesPayload) and "Expect" not in request.headers


async def _let_go(response: aiohttp.ClientResponse) -> None:
    """Release a response; its connection serves again if there was not much left on it."""
    left = MAX_READ_SIZE
    try:
        async with asyncio.timeout(READ_TIMEOUT):
            while left > 0 and not response.content.at_eof():
                left -= len(await response.content.readany())
    except (aiohttp.ClientError, TimeoutError):
        pass  # an error in it is not the next response's
    finally:
        response.release()
