"""What an agent's operator publishes: its Signature Agent Card, its IP ranges, and the page that explains the crawler.

The arguments are those of the commands; empty texts are left out. Sources: draft-meunier-webbotauth-registry of
September 2026 (the card), draft-illyes-webbotauth-cbcp-00 (the page), draft-illyes-aipref-jafar (the ranges).
"""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from ipaddress import ip_network
from typing import Any

from headgate.agent import Courtesy
from headgate.errors import ConfigurationError, explaining, fail_if
from headgate.identity import agent_url


def card(*, name: str, url: str, info: str, rate: str, contact: str, ranges_url: str) -> dict[str, Any]:
    """Return the Signature Agent Card; its `client_id` is where it has to be served."""
    token, user_agent, keys = _checked(name, url, info, rate)
    about = {
        "expected-user-agent": user_agent,
        "rfc9309-product-token": token,
        "rate-control": "429 and Retry-After, RateLimit fields, Crawl-delay in robots.txt, traffic advice",
        "rate-expectation": rate and f"{rate} to each origin",
        "ips_uri": ranges_url,
    }
    found = {
        "client_id": "/".join([*keys.split("/")[:3], ".well-known", "signature-agent-card"]),
        "client_name": token,
        "client_uri": info,
        "contacts": [contact] if contact else [],
        "jwks_uri": keys,
        "web_bot_auth": {member: value for member, value in about.items() if value},
    }
    return {member: value for member, value in found.items() if value}


def page(
    *, name: str, url: str, info: str, rate: str, contact: str, ranges_url: str, purpose: str, ranges: Iterable[str]
) -> str:
    """Return the page, in HTML."""
    token, user_agent, keys = map(escape, _checked(name, url, info, rate))
    networks = "".join(f"<li>{network}</li>" for network in _networks(ranges))
    link = f'<link rel="client-ranges" href="{escape(ranges_url)}">\n' if ranges_url else ""
    speed = f"At most {escape(rate)} to each origin. " if rate else ""
    sections = {
        "How to recognize it": f"<p>Its User-Agent is <code>{user_agent}</code>. Its requests over https are signed by "
        f"Web Bot Auth; the keys are at {keys}.</p>",
        "What the responses are used for": purpose and f"<p>{escape(purpose)}</p>",
        "How fast it is": f"<p>{speed}It slows down after 429 and 5xx, and obeys Retry-After, robots.txt and traffic "
        "advice. It renders no pages.</p>",
        "How to block it": "<p>In your robots.txt, which any parser of RFC 9309 checks:</p>\n"
        f"<pre>User-agent: {token}\nDisallow: /</pre>",
        "Contact": contact and f"<p>{escape(contact)}</p>",
        "IP ranges": networks and f"<ul>{networks}</ul>",
    }
    body = "\n".join(f"<h2>{title}</h2>\n{text}" for title, text in sections.items() if text)
    head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{token}</title>\n{link}'
    return f"{head}<h1>{token}</h1>\n{body}\n</html>\n"


def ranges_document(ranges: Iterable[str], *, now: float) -> dict[str, Any]:
    """Return the IP ranges for programs."""
    prefixes = [{f"ipv{network.version}Prefix": str(network)} for network in _networks(ranges)]
    token = sha256(json.dumps(prefixes).encode()).hexdigest()[:16]
    return {"synctoken": token, "creationTime": f"{datetime.fromtimestamp(now, UTC):%FT%TZ}", "prefixes": prefixes}


def _checked(name: str, url: str, info: str, rate: str) -> tuple[str, str, str]:
    """Return the product token, the User-Agent and the URL of the keys; raises `ConfigurationError`."""
    token = name.partition("/")[0]
    fail_if(
        not re.fullmatch("[A-Za-z_-]+", token),
        f"invalid name {name!r:.80}; expected letters, - and _ (RFC 9309), and a version: --name ExampleBot/1.0",
    )
    user_agent = Courtesy(name, info=info or None, rate=rate or None).user_agent
    keys = agent_url(url)
    if keys is None:
        raise ConfigurationError(f"invalid agent URL {url!r:.80}; expected one such as 'https://bot.example'")
    return token, user_agent, keys.fetch


def _networks(ranges: Iterable[str]) -> list[Any]:
    with explaining("invalid range", "expected a CIDR such as 192.0.2.0/24"):
        return list(map(ip_network, ranges))
