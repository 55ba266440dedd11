"""What an agent's operator publishes: its Signature Agent Card, its IP ranges, and the page that explains the crawler.

Sources: draft-meunier-webbotauth-registry of September 2026 (the card), draft-illyes-webbotauth-cbcp-00 (the page), and
draft-illyes-aipref-jafar (the ranges).
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from ipaddress import ip_network
from typing import Any, NamedTuple

from headgate.agent import Courtesy
from headgate.errors import ConfigurationError
from headgate.identity import AgentUrl, agent_url
from headgate.limit import Rule


class AgentDescription(NamedTuple):
    """What is published of an agent; empty texts are left out."""

    name: str
    """Its name, with its version if it sends that."""
    url: str
    """Where its keys are."""
    info: str = ""
    """The URL of the page about it."""
    rate: str = ""
    """Its `rate` for each origin."""
    contact: str = ""
    purpose: str = ""
    """A sentence that says what the responses are used for."""
    ranges: Sequence[str] = ()
    """The addresses that it sends from, as CIDRs."""
    ranges_url: str = ""
    """Where the document of its ranges is."""

    @property
    def user_agent(self) -> str:
        """Its User-Agent; raises `ConfigurationError` for an invalid name, page or rate."""
        return Courtesy(self.name, info=self.info or None, rate=self.rate or None).user_agent

    @property
    def token(self) -> str:
        """Its name in robots.txt."""
        return self.name.partition("/")[0]

    @property
    def keys(self) -> AgentUrl:
        """Where its keys are; raises `ConfigurationError` for an invalid URL."""
        found = agent_url(self.url)
        if found is None:
            raise ConfigurationError(f"invalid agent URL {self.url!r:.80}; expected one such as 'https://bot.example'")
        return found


def card(agent: AgentDescription) -> dict[str, Any]:
    """Return the Signature Agent Card; its `client_id` is where it has to be served."""
    host = agent.keys.fetch.partition("://")[2].partition("/")[0]
    about = {
        "expected-user-agent": agent.user_agent,
        "rfc9309-product-token": agent.token,
        "rate-control": "429 and Retry-After, RateLimit fields, Crawl-delay in robots.txt, traffic advice",
        "rate-expectation": _expectation(agent.rate),
        "ips_uri": agent.ranges_url,
    }
    found = {
        "client_id": f"https://{host}/.well-known/signature-agent-card",
        "client_name": agent.token,
        "client_uri": agent.info,
        "contacts": [agent.contact] if agent.contact else [],
        "jwks_uri": agent.keys.fetch,
        "web_bot_auth": {name: value for name, value in about.items() if value},
    }
    return {name: value for name, value in found.items() if value}


def ranges(agent: AgentDescription, *, now: float) -> dict[str, Any]:
    """Return the document of the IP ranges."""
    prefixes = [{f"ipv{network.version}Prefix": str(network)} for network in map(_network, agent.ranges)]
    token = sha256(json.dumps(prefixes).encode()).hexdigest()[:16]
    return {"synctoken": token, "creationTime": f"{datetime.fromtimestamp(now, UTC):%FT%TZ}", "prefixes": prefixes}


def page(agent: AgentDescription) -> str:
    """Return the page, in HTML."""
    rate = f"It sends at most {agent.rate} to each origin. " if agent.rate else ""
    known_by = (
        f"Its User-Agent is {agent.user_agent!r}. Its requests over https are signed by Web Bot Auth; the keys are"
    )
    slows = (
        "It slows down after 429 and 5xx, and obeys Retry-After, robots.txt and traffic advice. It renders no pages."
    )
    sections = [
        ("How to recognize it", f"{known_by} at {agent.keys.fetch}."),
        ("What the responses are used for", agent.purpose),
        ("How fast it is", rate + slows),
        ("Contact", agent.contact),
    ]
    title, body = escape(agent.token), [f"<h2>{name}</h2>\n<p>{escape(text)}</p>" for name, text in sections if text]
    body.append(
        "<h2>How to block it</h2>\n<p>In your robots.txt, which any parser of RFC 9309 checks:</p>\n"
        f"<pre>User-agent: {title}\nDisallow: /</pre>"
    )
    networks = "".join(f"<li>{network}</li>" for network in map(_network, agent.ranges))
    body += [f"<h2>IP ranges</h2>\n<ul>{networks}</ul>"] if networks else []
    url = escape(agent.ranges_url)
    link = f'\n<link rel="client-ranges" href="{url}">' if url else ""
    body += [f'<p><a href="{url}">The ranges for programs</a></p>'] if url else []
    head = f'<meta charset="utf-8">\n<title>{title}</title>{link}'
    return "\n".join(["<!doctype html>", '<html lang="en">', head, f"<h1>{title}</h1>", *body, "</html>", ""])


def _network(text: str) -> Any:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ConfigurationError(f"invalid range: {error}; expected a CIDR such as 192.0.2.0/24") from None


def _expectation(rate: str) -> str:
    if not rate:
        return ""
    rule = Rule.parse(rate)
    burst = f";max={rule.burst}" if "burst" in rate.lower() else ""
    return f"avg={1_000 * rule.count / rule.period_ms:g}rps{burst}"
