import asyncio
import socket
from contextlib import AsyncExitStack

import pytest

from headgate.errors import ConfigurationError
from headgate.runtime.admin import admin_url, start_admin


async def state(*, whole):
    return None


def addresses_bound(listen):
    async def main():
        async with AsyncExitStack() as closing:
            return await start_admin(
                listen, closing, state=state, unready=lambda: "", collect=lambda state: (), hosts=()
            )

    return asyncio.run(main())


def test_without_an_address_nothing_is_served():
    assert addresses_bound("") == []
    assert admin_url([]) == "none"


def test_url_has_the_port_that_the_system_chose():
    (bound,) = addresses_bound("127.0.0.1:0")
    assert bound.port > 0
    assert admin_url([bound]) == f"http://127.0.0.1:{bound.port}"


@pytest.mark.parametrize(("listen", "message"), [("nowhere", "invalid address"), ("{taken}", "--admin")])
def test_address_that_cannot_be_bound_is_an_error(listen, message):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match=message):
        addresses_bound(listen.format(taken=f"127.0.0.1:{taken.getsockname()[1]}"))
