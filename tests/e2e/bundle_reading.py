"""A range bundle read by either kind of client of either library, and what the reader of files finds in its bytes."""

import asyncio

from headgate.agent.bundle import AsyncRangeBundle, RangeBundle
from headgate.bundle.api import open_bundle
from headgate.errors import ResponseError


class Reading:
    """A range bundle, read by either kind of client."""

    def __init__(self, library, is_async):
        self.library = library
        self.is_async = is_async

    def all(self, url, **options):
        """Open, and read every response both ways; errors in place of those that are refused."""
        if self.is_async:
            return asyncio.run(self._aall(url, options))
        found = {}
        with self.library.Client() as client, RangeBundle.open(url, client=client, **options) as bundle:
            for address, location in locations(bundle.metadata):
                try:
                    whole = bundle.load(location)
                    with bundle.stream(location) as streamed:
                        assert b"".join(streamed.chunks) == whole.payload
                        assert (streamed.status, streamed.headers, streamed.length) == (
                            whole.status, whole.headers, len(whole.payload)
                        )  # fmt: skip
                    found[address] = whole
                except ResponseError as error:
                    found[address] = error
        return found

    async def _aall(self, url, options):
        found = {}
        async with (
            self.library.AsyncClient() as client,
            await AsyncRangeBundle.open(url, client=client, **options) as bundle,
        ):
            for address, location in locations(bundle.metadata):
                try:
                    whole = await bundle.load(location)
                    async with bundle.stream(location) as streamed:
                        assert b"".join([chunk async for chunk in streamed.chunks]) == whole.payload
                    found[address] = whole
                except ResponseError as error:
                    found[address] = error
        return found

    def open(self, url, **options):
        """Open and close."""
        if self.is_async:

            async def opened():
                async with await AsyncRangeBundle.open(url, **options) as bundle:
                    return bundle.metadata

            return asyncio.run(opened())
        with RangeBundle.open(url, **options) as bundle:
            return bundle.metadata


def locations(metadata):
    """Each URL and key, and where it is."""
    for url, found in metadata.requests.items():
        if hasattr(found, "locations"):
            yield from ((f"{url} {key}", location) for key, location in found.locations.items())
        else:
            yield url, found


def same(found, expected):
    """Whether two sets of responses are one."""
    assert found.keys() == expected.keys()
    for url, response in expected.items():
        if isinstance(response, ResponseError):
            assert isinstance(found[url], ResponseError)
            assert (found[url].reason, found[url].step, found[url].offset) == (
                response.reason, response.step, response.offset
            )  # fmt: skip
        else:
            assert (found[url].status, found[url].headers) == (response.status, response.headers)
            assert found[url].payload == response.payload
    return True


def expected(content, **options):
    """What the reader of files finds in the same bytes."""
    found = {}
    with open_bundle(content, **options) as bundle:
        for url, location in locations(bundle.metadata):
            try:
                found[url] = bundle.load(location)
            except ResponseError as error:
                found[url] = error
    return found
