"""Clients whose requests go through a `Courtesy`, made from options that the library's own class takes."""

import asyncio
from functools import partial

import httpx2
import pytest

from headgate.agent import Courtesy, NoContact
from headgate.agent.httpx import AsyncClient, AsyncTransport, Client, Transport

URL = "https://example.com/"


def held(**options) -> Courtesy:
    courtesy = Courtesy(clock=lambda: 1000.0, **options)
    courtesy.throttle.response_received(URL, 200, {"Retry-After": "60"}, now=1000.0)
    return courtesy


def test_client_is_the_library_s_and_sends_nothing_that_is_held():
    with Client(held(), headers={"X-One": "1"}, timeout=3) as client:
        assert isinstance(client, httpx2.Client)
        assert (client.headers["X-One"], client.timeout.read) == ("1", 3)
        with pytest.raises(NoContact):
            client.get(URL)


def test_asynchronous_client_is_too():
    async def ask():
        async with AsyncClient(held()) as client:
            assert isinstance(client, httpx2.AsyncClient)
            await client.get(URL)

    with pytest.raises(NoContact):
        asyncio.run(ask())


def test_every_transport_of_a_client_is_polite(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "direct.example")
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200))
    for make, polite in ((Client, Transport), (AsyncClient, AsyncTransport)):
        client = make("ExampleBot", mounts={"all://mounted.example": answer})
        assert isinstance(client._transport, polite)
        mounted = {pattern.pattern: transport for pattern, transport in client._mounts.items()}
        assert mounted["all://*direct.example"] is None  # which stands for the client's own
        for pattern in ("https://", "all://mounted.example"):
            assert isinstance(mounted[pattern], polite)
            assert mounted[pattern]._courtesy is client._transport._courtesy


def test_identity_stands_for_a_courtesy():
    for given, fetches in ((None, False), ("ExampleBot", True), (["ExampleBot", "*"], True)):
        with Client(given) as client:
            assert client._transport._courtesy.fetches_advice is fetches


def test_transport_of_the_caller_s_sends():
    with Client(None, transport=httpx2.MockTransport(lambda _: httpx2.Response(418))) as client:
        assert client.get(URL).status_code == 418


def test_close_closes_what_was_made():
    client = Client(None)
    inner = client._transport._inner
    closed = []
    inner.close = partial(closed.append, True)
    client.close()
    assert closed == [True]
