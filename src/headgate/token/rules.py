"""Speculation rules that make a browser prefetch URLs through the site's own proxy, with one token for each URL.

The members are those of the explainer of referrer-provided prefetch proxies (WICG/nav-speculation, 2026). A browser
that does not support its two new requirements ignores the rule.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

from headgate.errors import ConfigurationError
from headgate.http.url import has_credentials, parse_url, serialised_origin
from headgate.token.keys import Key
from headgate.token.signed_token import mint, target_origin

_ANONYMOUS: Final = "anonymous-client-ip-when-cross-origin"
_SITE_PROXY: Final = ("use-referrer-provided-prefetch-proxy", "prefetch-proxy-authorization-tokens")


def speculation_rules(
    urls: Iterable[str],
    *,
    proxy: str,
    key: Key,
    now: float,
    ttl: float,
    entropy: Callable[[int], bytes],
    bind: bool = False,
    fallback: bool = True,
) -> dict[str, Any]:
    """Return the rules that prefetch these URLs through the proxy at an https URL, as a JSON object.

    A repeated URL counts once. Tokens are minted with `key`, `now`, `ttl` and `entropy` as by `mint`. `bind` restricts
    each token to its URL's origin; it makes one rule for each origin, because a browser may use any token of a rule for
    any of its URLs. Without `fallback` the browser must not use a proxy of its own if the site's proxy fails. Raises
    `ConfigurationError` without a URL, for one that is not an absolute https URL, and where `mint` raises it.
    """
    unique_urls = list(dict.fromkeys(map(_parse_url, urls)))
    if not unique_urls:
        raise ConfigurationError("speculation rules require at least one URL, such as https://example.com/next")
    groups: dict[str | None, list[str]] = {}
    for url in unique_urls:
        groups.setdefault(target_origin(url) if bind else None, []).append(url)
    requires = [*([_ANONYMOUS] if fallback else []), *_SITE_PROXY]
    proxy_origin = _parse_proxy(proxy)
    return {
        "prefetch": [
            {
                "source": "list",
                "urls": group,
                "requires": requires,
                "referrer_provided_prefetch_proxy": proxy_origin,
                "proxy_authorization_tokens": [
                    mint(key, now=now, ttl=ttl, entropy=entropy, origin=origin) for _ in group
                ],
            }
            for origin, group in groups.items()
        ]
    }


def script_text(rules: dict[str, Any]) -> str:
    """Return rules as the content of a `<script type="speculationrules">` element: ASCII, without "<".

    Therefore a URL cannot end the element or begin a comment in it, in any encoding of the page.
    """
    return json.dumps(rules, separators=(",", ":")).replace("<", "\\u003c")


def _parse_url(text: str) -> str:
    url = parse_url(text)
    if url is None or not url.startswith("https://") or has_credentials(url):
        raise ConfigurationError(
            f"invalid URL {text!r}; expected an https URL without credentials, such as https://example.com/next"
        )
    return url


def _parse_proxy(text: str) -> str:
    origin = serialised_origin(text)
    if origin is None or not origin.startswith("https://") or parse_url(text) != f"{origin}/":
        raise ConfigurationError(
            f"invalid proxy URL {text!r}; expected an https origin without a path, such as https://prefetch.example.com"
        )
    return origin
