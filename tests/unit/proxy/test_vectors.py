"""The vectors of addresses, through all steps from a CONNECT to the connection to a target."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

from headgate.fetch.destinations import AddressRules
from headgate.proxy.admission.authority import HostRules, parse_authority
from headgate.proxy.admission.destinations import Overrides, Resolver
from headgate.proxy.dns import SystemLookup
from headgate.proxy.refusal import Refusal

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "proxy" / "addresses.json").read_text())["cases"]
PORT = 8443


class NameServer:
    """Returns the answers of the case one after another, then the last one again."""

    def __init__(self, answers: list[list[str]]) -> None:
        self.answers = answers
        self.asked = 0

    def __call__(self, host: bytes, *_: Any, **__: Any) -> list[Any]:
        if host == b"localhost":
            return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        if not self.answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        return [(0, 0, 0, "", (address, 0)) for address in answer]


async def find(case: dict[str, Any], server: NameServer) -> list[str] | Refusal:
    """Return the addresses that would be connected to, or the refusal."""
    lookup = SystemLookup(getaddrinfo=server)
    overrides = [f"{case['host']}={case['resolve']}"] if "resolve" in case else []
    resolver = Resolver(AddressRules(is_local_address=lambda _: False), lookup, overrides=Overrides(overrides))
    authority = parse_authority(f"{case['host']}:{PORT}")
    if authority is None:
        return Refusal("malformed")
    try:
        refusal = HostRules(ports=[PORT]).refusal(authority)
        return refusal or [str(endpoint.address) for endpoint in await resolver.resolve(authority, b"client")]
    except Refusal as raised:
        return raised


def test_every_vector() -> None:
    for case in CASES:
        check(case)


def check(case: dict[str, Any]) -> None:
    """Check that a case reaches only what it may, or is refused."""
    server = NameServer(case.get("dns", []))
    for _ in range(len(server.answers) or 1):
        asked = server.asked
        found = asyncio.run(find(case, server))
        assert server.asked - asked <= 1
        if isinstance(found, list):
            assert found
            assert set(found) <= set(case.get("may_reach", []))
            continue
        expected = case.get("status", 403)
        assert found.rule.status in (expected if isinstance(expected, list) else [expected])
        fields = dict(found.refused.fields)
        assert fields.get("retry-after") == ("0" if found.rule.status in {403, 502, 504} else None)
        assert fields["proxy-status"].startswith("headgate; error=")
