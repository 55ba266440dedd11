"""Tokens: how a proxy knows that a site it belongs to asked for a CONNECT, without asking that site.

The referring site mints them into its page, the browser shows one per prefetch, and the proxy checks it by a key alone:
that it is genuine, has not expired, is for this origin, and was not shown before. It is a core, and no part of the
proxy, because both ends need it. `headgate.token.rules` writes the speculation rules that carry them.
"""

from headgate.token.checking import Checker, Reason, Valid
from headgate.token.jwk import new_key, read_keys
from headgate.token.key import Key
from headgate.token.minting import mint
from headgate.token.replay import ReplayTable

__all__ = ["Checker", "Key", "Reason", "ReplayTable", "Valid", "mint", "new_key", "read_keys"]
