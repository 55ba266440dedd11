"""The ordinary case, with an origin everybody knows."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.gateway_setup import agent_at, gateway_running
from tests.servers import Server

pytestmark = pytest.mark.usefixtures("run")

SITE = """
location / { root FOLDER; }
location /gone { return 404; }
location /moved { return 301 http://$host:$server_port/there; }
location /asked { default_type text/plain; return 200 "$host|$http_x_forwarded_for|$http_via|$request_uri"; }
location /upload { client_max_body_size 0; dav_methods PUT; root FOLDER; create_full_put_path on; }
"""


@pytest.fixture
def site(tmp_path: Path, nginx: Callable[..., Server]) -> Server:
    folder = tmp_path / "site"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    tmp_path.chmod(0o755)
    for above in tmp_path.parents[:3]:
        above.chmod(0o755)  # nginx's worker is another user when this runs as root
    (folder / "small.txt").write_text("small\n")
    (folder / "large.bin").write_bytes(bytes(range(256)) * 8192)
    return nginx(server=SITE.replace("FOLDER", str(folder)))


@pytest.mark.needs("nginx")
async def test_files_ranges_validators_and_errors(site: Server) -> None:
    async with gateway_running(site.port) as gateway, agent_at(gateway) as agent:

        async def get(path: bytes, fields: bytes = b"", method: bytes = b"GET") -> tuple[int, bytes, bytes | None]:
            reply = await agent.ask(b"%b %b HTTP/1.1\r\nHost: site.example\r\n%b\r\n" % (method, path, fields))
            return reply.status, reply.body, reply.field(b"etag")

        status, body, etag = await get(b"/small.txt")
        assert (status, body) == (200, b"small\n")
        assert (await get(b"/small.txt", b"If-None-Match: %b\r\n" % etag))[:2] == (304, b"")
        assert (await get(b"/small.txt", method=b"HEAD"))[:2] == (200, b"")
        assert (await get(b"/small.txt", b"Range: bytes=1-2\r\n"))[:2] == (206, b"ma")
        assert (await get(b"/gone"))[0] == 404
        assert (await get(b"/moved"))[0] == 301
        assert (await get(b"/asked?a=%20b"))[1] == b"site.example|127.0.0.1|1.1 headgate|/asked?a=%20b"
        large = (await get(b"/large.bin"))[1]
        assert hashlib.sha256(large).digest() == hashlib.sha256(bytes(range(256)) * 8192).digest()


@pytest.mark.needs("nginx")
async def test_uploads(site: Server) -> None:
    body = bytes(range(256)) * 4096
    async with gateway_running(site.port) as gateway, agent_at(gateway) as agent:
        put = b"PUT /upload/%b HTTP/1.1\r\nHost: a\r\n"
        expecting = put % b"one" + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(body)
        await agent.send(expecting)
        assert await agent.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await agent.send(body)
        assert (await agent.response()).status == 201
        chunks = b"".join(b"%x\r\n%b\r\n" % (1024, body[i : i + 1024]) for i in range(0, len(body), 1024))
        reply = await agent.ask(put % b"two" + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        assert reply.status == 201
        for name in (b"one", b"two"):
            assert (await agent.ask(b"GET /upload/%b HTTP/1.1\r\nHost: a\r\n\r\n" % name)).body == body
