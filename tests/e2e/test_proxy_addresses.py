"""No packet is sent to a forbidden address, in whatever form and from whatever source it comes.

The proxy runs in a network of its own, in which every address answers, and every packet that is sent is heard.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import network_namespace

pytestmark = pytest.mark.needs("unshare", "ip")

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "proxy" / "addresses.json").read_text())["cases"]
VECTORS = [case for case in CASES if not {"dns", "resolve"} & set(case) and case["host"] != "missing.example.org"]
NAMED = [case for case in CASES if "dns" in case]

HERE, THERE = "93.184.216.34", network_namespace.OWN_IPV6
"""Global addresses, which lead to this machine in this network."""

MORE = (
    "127.0.0.1.", "0", "017700000001", "%31%32%37%2e0%2e0%2e1", "LOCALHOST", "[0:0:0:0:0:0:0:1]", "0.1.2.3",
    "[::ffff:0:169.254.169.254]", "[64:ff9b::808:808]", "[64:ff9b:1:ffff::8.8.8.8]", "[2001:20::1]", "[3fff::1]",
    "[4000::1]", "[feff::1]",
)  # fmt: skip
"""Further forms of forbidden addresses."""

MALFORMED = ("127.0.0.1%00", "[127.0.0.1]", "[::1", "::1", "[::1%lo]", "[v1.x]", "127.0.0.1 ")

TURNS = {"six.example.org": [[THERE]], "four.example.org": [[HERE]]}
REFUSED = [case["host"] for case in VECTORS] + [*MORE, *MALFORMED]
LOCAL = ("0.0.0.0", "127.0.0.1", "127.9.9.9", "0x7f.1", "localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]",
    "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", HERE, f"[{THERE}]", "loop.example.org", "four.example.org",
    "six.example.org")  # fmt: skip
ADMIN = ("127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]")


def plan() -> dict[str, Any]:
    plain = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--plaintext"]
    plain += ["--resolve", "mapped.example.org=10.1.2.3"]
    rows = [f"{host}:PORT" for host in (*REFUSED, "loop.example.org", "mixed.example.org", "mapped.example.org")]
    everything = ["--unreachable", "permit", "--allow-address", "0.0.0.0/0", "--allow-address", "::/0"]
    own = ["--listen", "0.0.0.0:8443", "--allow-port", "8443", "--admin", "127.0.0.1:8090", "--allow-port", "8090"]
    own += ["--plaintext", "--insecure", "--resolve", "own.here=127.0.0.1:8443"]
    return {
        "dns": {case["host"]: case["dns"] for case in NAMED} | TURNS,
        "certify": ["*.example.org", HERE],
        "proxies": {
            "closed": {"flags": plain, "rows": rows},
            "turns": {"flags": plain, "rows": ["rebind.example.org:PORT"] * 3},
            "open": {"flags": [*plain, *everything], "rows": rows},
            "own": {
                "flags": [*own, *everything],
                "rows": [f"{host}:LISTEN" for host in LOCAL] + ["own.here:PORT"] + [f"{host}:ADMIN" for host in ADMIN],
            },
        },
    }  # fmt: skip


class Seen:
    """The outcomes of all rows, by proxy and row; several for a row that was requested several times."""

    def __init__(self, folder: Path) -> None:
        wanted = plan()
        told = network_namespace.run_plan(folder, wanted)
        self.port = told.pop("port")
        self.missed = told.pop("missed")
        self._rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for proxy, outcomes in told.items():
            for row, outcome in zip(wanted["proxies"][proxy]["rows"], outcomes, strict=True):
                self._rows.setdefault((proxy, row), []).append(outcome)

    def all(self, proxy: str, row: str) -> list[dict[str, Any]]:
        """Return every outcome of a row."""
        return self._rows[proxy, row]

    def one(self, proxy: str, row: str) -> dict[str, Any]:
        """Return the outcome of a row."""
        (outcome,) = self._rows[proxy, row]
        return outcome


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    if not network_namespace.is_permitted():
        pytest.skip("this user may have no network of its own (unshare)")
    return Seen(tmp_path_factory.mktemp("network"))


def reason(outcome: dict[str, Any]) -> str:
    """Return the reason in `Proxy-Status`."""
    return str(outcome["fields"]["proxy-status"]).rpartition('details="')[2].removesuffix('"')


def is_refused(outcome: dict[str, Any], status: int, why: str) -> bool:
    """Check a refusal, and that no packet was sent; return True."""
    assert outcome["reached"] == []
    assert (outcome["status"], reason(outcome)) == (status, why)
    assert outcome["fields"].get("retry-after") == ("0" if status in {403, 502, 504} else None)
    return True


def test_no_packet_is_sent_to_a_forbidden_address_in_any_form(seen: Seen) -> None:
    for host in REFUSED:
        outcome = seen.one("closed", f"{host}:PORT")
        allowed = next((case["status"] for case in VECTORS if case["host"] == host and "status" in case), [403])
        if host in MALFORMED:
            allowed = [400]
        assert outcome["status"] in allowed, host
        assert is_refused(outcome, outcome["status"], "malformed" if outcome["status"] == 400 else "address"), host
        assert outcome["queries"] == {}, f"{host} is not looked up"
    for name in ("loop.example.org", "mixed.example.org", "mapped.example.org"):
        assert is_refused(seen.one("closed", f"{name}:PORT"), 403, "address"), name


def test_advice_and_tunnel_use_the_address_that_was_checked(seen: Seen) -> None:
    first, *later = seen.all("turns", "rebind.example.org:PORT")
    # One lookup, and both the advice and the tunnel use its result.
    assert first["queries"] == {"rebind.example.org A": 1, "rebind.example.org AAAA": 1}
    assert first["reached"] == [[network_namespace.TCP, HERE, seen.port]]
    assert (first["status"], first["echoes"]) == (200, True)
    for outcome in later:
        assert is_refused(outcome, 403, "address")
        assert outcome["queries"] == {"rebind.example.org A": 1, "rebind.example.org AAAA": 1}


# The proxy's own listeners: every address is allowed, and every one is local.


@pytest.mark.parametrize("row", [*(f"{host}:LISTEN" for host in LOCAL), "own.here:PORT"])
def test_the_listener_is_not_connected_to_at_any_address_of_this_machine(row: str, seen: Seen) -> None:
    assert is_refused(seen.one("own", row), 403, "address")


@pytest.mark.parametrize("host", ADMIN)
def test_the_admin_listener_is_not_connected_to(host: str, seen: Seen) -> None:
    assert is_refused(seen.one("own", f"{host}:ADMIN"), 403, "address")


# The recording itself.


def test_no_packet_was_missed(seen: Seen) -> None:
    assert seen.missed == 0


UNDIALLED = {"224.0.0.1", "239.255.255.250", "255.255.255.255", "[fe80::1]", "[febf::1]", "[ff02::1]", "[ff0e::1]"}
"""Addresses to which the system does not connect: multicast, broadcast, and link-local addresses without a link."""


def test_a_packet_to_any_of_them_would_have_been_recorded(seen: Seen) -> None:
    """With every address allowed, each one is connected to, and recorded."""
    for host in REFUSED:
        outcome = seen.one("open", f"{host}:PORT")
        if outcome["status"] == 400:
            assert outcome["reached"] == []
        elif host in UNDIALLED:
            assert (outcome["status"], outcome["reached"]) == (502, []), host
        else:
            assert [place[2] for place in outcome["reached"]] == [seen.port], host
            assert (outcome["status"], outcome["echoes"]) == (200, True), host
    for host in ("loop.example.org", "mapped.example.org"):
        assert seen.one("open", f"{host}:PORT")["reached"], host
