"""Signed, single-use tokens that let a browser open a tunnel through a site's prefetch proxy.

The site mints tokens into its pages, the browser sends one with each prefetch, and the proxy checks it with a key:
the signature, the expiry, the origin, and that it was not used before. The proxy sends no request to the site.
This package is pure and apart from the proxy, because both the site and the proxy need it.
"""

from headgate.token.keys import Key, new_key, read_keys
from headgate.token.replay_table import ReplayTable
from headgate.token.signed_token import Checker, Reason, ValidToken, mint

__all__ = ["Checker", "Key", "Reason", "ReplayTable", "ValidToken", "mint", "new_key", "read_keys"]
