"""The load of the benchmarks of gateway and middleware: heads such as browsers send, each different from all others.

wrk sends them: path, query and cookie have the number of the request, so that a cache keyed by a whole head never hits.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.measure import verify

CONNECTIONS = 32
"""Kept connections, each with one request at a time."""

HEAD = (
    "GET /shop/item/%d/details?ref=search&query=%d&page=3 HTTP/1.1\r\n"
    "Host: shop.example:8080\r\n"
    "Connection: keep-alive\r\n"
    'sec-ch-ua: "Chromium";v="140", "Not=A?Brand";v="24", "Google Chrome";v="140"\r\n'
    "sec-ch-ua-mobile: ?0\r\n"
    'sec-ch-ua-platform: "Linux"\r\n'
    "Upgrade-Insecure-Requests: 1\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 "
    "Safari/537.36\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8\r\n"
    "Sec-Fetch-Site: same-origin\r\n"
    "Sec-Fetch-Mode: navigate\r\n"
    "Sec-Fetch-User: ?1\r\n"
    "Sec-Fetch-Dest: document\r\n"
    "Referer: http://shop.example:8080/shop/search?query=lamp\r\n"
    "Accept-Encoding: gzip, deflate, br, zstd\r\n"
    "Accept-Language: en-US,en;q=0.9\r\n"
    "Cache-Control: max-age=0\r\n"
    "Cookie: session=%032d; theme=dark; consent=1\r\n"
    "%s\r\n"
)
"""A request head of about 830 bytes; takes the request's number three times, and more field lines."""

SCRIPT = """
local number = {first}
local head = {head}
{delay}
request = function()
    number = number + 1
    return string.format(head, number, number, number, {more})
end
"""
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@dataclass(frozen=True)
class Result:
    """What wrk saw in one run."""

    requests: int
    refused: int
    """Responses with another status than 2xx or 3xx."""
    p99: float
    """Milliseconds within which 99 of 100 responses arrived."""


def write_script(path: Path, *, first: int = 0, more: str = '""', pause: int = 0) -> Path:
    """Write wrk's script to `path`; `more` is a Lua expression for more field lines, which may use `number`.

    Each connection pauses for `pause` milliseconds on average before each request.
    """
    delay = f"function delay() return math.random(0, {2 * pause}) end" if pause else ""
    quoted = '"' + HEAD.replace("\\", "\\\\").replace('"', '\\"').replace("\r\n", "\\r\\n") + '"'
    path.write_text(SCRIPT.format(first=first, head=quoted, more=more, delay=delay))
    return path


def load(
    port: int, script: Path, *, seconds: int, prefix: tuple[str, ...] = (), connections: int = CONNECTIONS
) -> Result:
    """Send requests to a port of this machine as fast as responses arrive; `prefix` goes before wrk's command."""
    command = [*prefix, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"]
    command += ["--latency", "-s", str(script), f"http://127.0.0.1:{port}/"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    made = re.search(r"(\d+) requests in", done.stdout)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    latency = re.search(r"99%\s+([\d.]+)(us|ms|s)", done.stdout)
    errors = re.search(r"Socket errors: (.*)", done.stdout)
    verify(f"no socket errors ({errors[1] if errors else 'none'})", right=made is not None and errors is None)
    assert made is not None
    p99 = float(latency[1]) * _UNITS[latency[2]] if latency else 0.0
    return Result(int(made[1]), int(refused[1]) if refused else 0, p99)
