import asyncio
import socket

import pytest

from headgate.config.tree import AdminSection
from headgate.errors import ConfigurationError
from headgate.runtime.admin import admin_url, start_admin
from headgate.runtime.lifecycle import Server


def server_at(listen):
    async def main():
        server = Server()
        async with server.closing:
            await start_admin(server, listen, AdminSection())
        return server

    return asyncio.run(main())


def test_without_an_address_nothing_is_served():
    assert admin_url(server_at("")) == "none"


def test_url_has_the_port_that_the_system_chose():
    server = server_at("127.0.0.1:0")
    (bound,) = server.admin
    assert bound.port > 0
    assert admin_url(server) == f"http://127.0.0.1:{bound.port}"


@pytest.mark.parametrize(("listen", "message"), [("nowhere", "invalid address"), ("{taken}", "--admin")])
def test_address_that_cannot_be_bound_is_an_error(listen, message):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigurationError, match=message):
        server_at(listen.format(taken=f"127.0.0.1:{taken.getsockname()[1]}"))
