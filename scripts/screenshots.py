"""Take pictures of the dashboard at three widths in both themes, for docs/pictures: `make screenshots`, three minutes.

A gate with four domains and two origins is asked by some clients; one of them exceeds the rule of its domain.
"""

import asyncio
import base64
import io
import random
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from PIL import Image

from tests.chromium import Page, chromium
from tests.e2e import programs

_FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
_SIZES = {1280: 1240, 768: 1180, 360: 1180}
_SECONDS = 120
_COLORS = 160
_CONFIGURATION = """
[admin]
control = true
token = "token"
[gate]
trusted_proxies = ["127.0.0.1"]
max_delay = 1.0
workers = 2
[limit.concurrency]
max = 30
[[advice]]
user_agent = "*"
fraction = 0.5
"""
_RULES = {"login": "1/s burst 5", "search": "5/s burst 10", "checkout": "5/s burst 10", "pages": "30/s burst 60"}
_PATHS = {"/": 60, "/search": 20, "/checkout": 5, "/login": 30}


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.CancelledError):  # at the end
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            await asyncio.sleep(random.expovariate(40) + 0.25 * (random.random() < 0.02))
            status = b"500 Internal Server Error" if random.random() < 0.004 else b"200 OK"
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\nok" % status)
        writer.close()


async def _ask(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    (path,) = random.choices(list(_PATHS), list(_PATHS.values()))
    client = f"203.0.113.{int(random.paretovariate(0.9)) % 200 + 1}"
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: {client}\r\nConnection: close\r\n\r\n".encode()
    )
    await reader.read()
    writer.close()


async def _load(port: int, seconds: float) -> None:
    async with asyncio.timeout(seconds + 10), asyncio.TaskGroup() as group:
        for _ in range(int(40 * seconds)):
            group.create_task(_ask(port))
            await asyncio.sleep(random.expovariate(40))


async def _picture(page: Page, width: int, theme: str) -> None:
    height = _SIZES[width]
    await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    await page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    await asyncio.sleep(2)
    image = Image.open(io.BytesIO(base64.b64decode((await page.call("Page.captureScreenshot"))["data"])))
    image.convert("RGB").quantize(_COLORS).save(_FOLDER / f"dashboard-{width}-{theme}.png", optimize=True)


async def main() -> None:
    """Write the pictures."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        origins = [await asyncio.start_server(_serve, "127.0.0.1", 0) for _ in range(2)]
        for origin in origins:
            await stack.enter_async_context(origin)
        ports = [origin.sockets[0].getsockname()[1] for origin in origins]
        parts = [f'[[origin]]\nurl = "http://127.0.0.1:{port}"\n' for port in ports]
        for name, rule in _RULES.items():
            prefix = f'path_prefix = "/{name}"\n' if name != "pages" else ""
            parts.append(f'[[domain]]\nname = "{name}"\nrules = ["{rule}"]\n{prefix}')
        (folder / "token").write_text("0123456789abcdef")
        (folder / "headgate.toml").write_text(_CONFIGURATION + "".join(parts))
        gate = stack.enter_context(programs.gate(folder))
        browser = await stack.enter_async_context(chromium("https://127.0.0.1:9", flags=["--hide-scrollbars"]))
        loading = asyncio.create_task(_load(gate.port, _SECONDS + 60))
        page = await browser.open(gate.ready["admin"])
        await asyncio.sleep(_SECONDS)
        for theme in ("light", "dark"):
            for width in _SIZES:
                await _picture(page, width, theme)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
