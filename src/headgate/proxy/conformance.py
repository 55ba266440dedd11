"""The requirements of the draft "Privacy-Preserving Prefetch Proxy Servers" (WICG, 2026).

They are checked against a configuration. Each row is a sentence of the draft in our words. Recommendations do not
decide whether a proxy conforms.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from headgate.advice.freshness import MIN_FRESHNESS
from headgate.config.proxy_section import Proxy

Level: TypeAlias = Literal["MUST", "STEP", "SHOULD", "RECOMMENDED"]
"""The level of a requirement; STEP is one of the steps of the draft's protocol."""


class Requirement(NamedTuple):
    """One requirement."""

    section: str
    level: Level
    words: str
    is_met: bool
    how: str
    """How it is met, or how to meet it."""


def requirements(proxy: Proxy) -> tuple[Requirement, ...]:
    """Return every requirement, checked against one configuration."""
    return (*_protocol(proxy), *_abuse(proxy), *_privacy(proxy))


def conforms(rows: Iterable[Requirement]) -> bool:
    """Return whether every MUST and STEP is met."""
    return all(row.is_met or row.level in {"SHOULD", "RECOMMENDED"} for row in rows)


def _row(
    section: str, level: Level, words: str, how: str, *, is_met: object = True, otherwise: str = ""
) -> Requirement:
    """Return a requirement; `otherwise` says how to meet it."""
    return Requirement(section, level, words, bool(is_met), how if is_met else otherwise)


def _protocol(proxy: Proxy) -> Iterator[Requirement]:
    has_tls = not proxy.plaintext
    add_cert, add_key = "remove --plaintext, and add --cert and --key", "tokens are not required: add --token-key F"
    versions = " and ".join(name.replace("h2", "HTTP/2").upper() for name in proxy.alpn) if has_tls else "HTTP/1.1"
    before_tls, good_once = "nothing is read before the TLS handshake", "407, with the reason; each token is good once"
    yield _row("2.1", "MUST", "CONNECT or CONNECT-UDP is supported", "CONNECT")
    yield _row(
        "2.1", "MUST", "connections are protected with TLS", "TLS 1.2 or 1.3 alone", is_met=has_tls, otherwise=add_cert
    )
    yield _row("2.3", "MUST", "HTTP/1.1, HTTP/2 or HTTP/3 is supported", versions)
    yield _row("2.3", "MUST", "an unencrypted CONNECT is not accepted", before_tls, is_met=has_tls, otherwise=add_cert)
    words = "the client's token is checked, and an invalid one is an error"
    yield _row("2.3", "STEP", words, good_once, is_met=proxy.token_keys, otherwise=add_key)
    yield _row("2.3", "STEP", "the host is resolved", "once, and every address of it is checked")
    yield _row("2.3", "STEP", "the origin's traffic advice is looked up", "at a checked address, or known")
    yield _row("2.3", "STEP", "a tunnel is established, or the answer is an error", "each with its reason")
    yield _row("2.3", "STEP", "a 2xx response is sent, then bytes are forwarded as in RFC 9110", "both ways")


def _abuse(proxy: Proxy) -> Iterator[Requirement]:
    restrictions = {
        "with a token": proxy.token_keys,
        "with a client certificate": proxy.client_ca,
        "to allowed hosts": proxy.allow_hosts,
    }
    given = [words for words, setting in restrictions.items() if setting]
    yield _row(
        "3.1",
        "MUST",
        "abuse is prevented, and the proxy is not a general anonymizer",
        f"tunnels only {' and '.join(given)}; refusals cost no lookup",
        is_met=given,
        otherwise="any client gets a tunnel to any host: add --token-key F, --client-ca F or --allow-host HOST",
    )
    rate, ratio, seconds = proxy.client_rate, proxy.byte_ratio, proxy.max_seconds
    for words, how, is_met, flag in (
        ("tokens of the referring site", "signed, expiring, each good once", proxy.token_keys, "--token-key F"),
        ("a limit to the rate of each client's address", rate, rate != "off", "--client-rate '10/s burst 50'"),
        ("a ratio of bytes, as origins send more than clients", f"{ratio:g} received for each one sent", ratio > 0,
         "--byte-ratio 1"),
        ("a limit to the duration of a session", f"{seconds:g} s", seconds > 0, "--max-seconds 300"),
    ):  # fmt: skip
        yield _row("3.1", "RECOMMENDED", words, how, is_met=is_met, otherwise=f"add {flag}")
    limits = f"{proxy.max_tunnels} tunnels, and {proxy.max_connections} connections in each worker"
    yield _row("3.1", "RECOMMENDED", "a limit to all connections together", limits)
    firewall = "not part of this program: use a firewall, and --log-client while you look for them"
    yield _row("3.1", "RECOMMENDED", "a blocklist of abusive addresses", "", is_met=False, otherwise=firewall)


def _privacy(proxy: Proxy) -> Iterator[Requirement]:
    words, how = "a geofeed (RFC 8805) of its addresses is published", f"at {proxy.geofeed_path}"
    yield _row("3.2", "MUST", words, how, is_met=proxy.geofeed, otherwise="add --geofeed F")
    words = "cookies and other identifiers of clients are not sent to origins"
    how = "no field of a CONNECT is forwarded, and a fetch of advice has nothing of the client"
    yield _row("3.3", "MUST", words, how)
    words, how = "only what is needed to prevent abuse is logged", "refusals without the client, and tunnels as counts"
    logs_little = proxy.log == "refusals" and not proxy.log_client
    yield _row("3.3", "SHOULD", words, how, is_met=logs_little, otherwise="remove --log all and --log-client")
    fallback = "let through, unless its cached advice refuses" if proxy.unreachable == "permit" else "held"
    how = f'for {proxy.brand}, "prefetch-proxy" and "*"; an unreachable origin is {fallback}'
    yield _row("3.4", "MUST", '"fraction" and "disallow" are respected', how)
    how = f"for {proxy.min_freshness / 60:g} min to 48 h, then revalidated"
    keeps_long = proxy.min_freshness >= MIN_FRESHNESS
    otherwise = "remove --min-freshness: at least 10 minutes are suggested"
    yield _row("3.4", "SHOULD", "advice is cached as HTTP says", how, is_met=keeps_long, otherwise=otherwise)
