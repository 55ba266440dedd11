"""Traffic advice on the agent's side: which origin is asked when, and through which HTTP client.

`AdviceClient` owns the cache and the fetches that are under way. A transport hands it a `StartFetch`, made by
`in_thread` or `in_task` from a function that makes one request with the transport's own library: `httpx`,
`client_aiohttp`, `client_requests` and `client_urllib`. Where there is no such client, `fetcher` has one of its own.

Whatever sends the request: it is one GET with nothing of the user's in it, no cookie and no credentials, and no
redirect is followed.
"""

from headgate.agent.fetch.advice_client import AdviceClient, PendingAdvice
from headgate.agent.fetch.start import StartFetch, in_task, in_thread

__all__ = ["AdviceClient", "PendingAdvice", "StartFetch", "in_task", "in_thread"]
