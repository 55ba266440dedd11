"""Speculation rules that have the browser prefetch through the site's own proxy, with a token for each candidate.

The members are those of the explainer of referrer-provided prefetch proxies (WICG/nav-speculation, 2026). A browser
that does not know the two new requirements takes a rule with them for none at all.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from headgate.errors import ConfigurationError
from headgate.http.origin import serialised_origin
from headgate.http.url import has_credentials, parse_url
from headgate.token.key import Key
from headgate.token.minting import Entropy, mint, target_origin

__all__ = ["script_text", "speculation_rules"]

_ANONYMOUS: Final = "anonymous-client-ip-when-cross-origin"
_OWN_PROXY: Final = ("use-referrer-provided-prefetch-proxy", "prefetch-proxy-authorization-tokens")


def speculation_rules(
    urls: Iterable[str],
    *,
    proxy: str,
    key: Key,
    now: float,
    ttl: float,
    entropy: Entropy,
    bind: bool = False,
    fallback: bool = True,
) -> dict[str, Any]:
    """Give the rules to prefetch these URLs through the proxy at that https URL, as JSON is decoded.

    A URL that is there twice is one candidate. Tokens are as with `mint`; `bind` makes each good for its candidate's
    origin alone. Of a rule's tokens a browser takes any, so with `bind` there is a rule for each origin. Without
    `fallback` a browser may not use a proxy of its own where the site's fails. Raises `ConfigurationError` for no URLs,
    for what is no absolute https URL, and what `mint` raises.
    """
    candidates = list(dict.fromkeys(map(_candidate, urls)))
    if not candidates:
        raise ConfigurationError("no URL to prefetch; name one, such as https://example.com/next")
    groups: dict[str | None, list[str]] = {}
    for url in candidates:
        groups.setdefault(target_origin(url) if bind else None, []).append(url)
    requires = [*([_ANONYMOUS] if fallback else []), *_OWN_PROXY]
    address = _proxy_url(proxy)
    return {
        "prefetch": [
            {
                "source": "list",
                "urls": group,
                "requires": requires,
                "referrer_provided_prefetch_proxy": address,
                "proxy_authorization_tokens": [
                    mint(key, now=now, ttl=ttl, entropy=entropy, origin=origin) for _ in group
                ],
            }
            for origin, group in groups.items()
        ]
    }


def script_text(rules: dict[str, Any]) -> str:
    """Write rules as what stands between `<script type="speculationrules">` and its end: ASCII, without any "<".

    So nothing in them ends the element or begins a comment in it, whatever the page's encoding.
    """
    return json.dumps(rules, separators=(",", ":")).replace("<", "\\u003c")


def _candidate(text: str) -> str:
    url = parse_url(text)
    if url is None or not url.startswith("https://") or has_credentials(url):
        raise ConfigurationError(
            f"invalid URL {text!r}; expected an https URL without credentials, such as https://example.com/next"
        )
    return url


def _proxy_url(text: str) -> str:
    """Check that a proxy is an https origin, and give it."""
    origin = serialised_origin(text)
    if origin is None or not origin.startswith("https://") or parse_url(text) != f"{origin}/":
        raise ConfigurationError(
            f"invalid proxy URL {text!r}; expected an https origin without a path, such as https://prefetch.example.com"
        )
    return origin
