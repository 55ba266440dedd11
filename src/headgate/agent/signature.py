"""Which requests of an agent are signed by Web Bot Auth: those over https, to all origins or to those that ask for it.

The signature itself is made in `headgate.identity`. This file knows nothing of HTTP libraries.
"""

import logging
import os
from typing import Final, Literal, TypeAlias

from headgate.config.toml_reader import key_file_warnings, read_text
from headgate.errors import fail_if, naming
from headgate.http.fields import lines_of
from headgate.http.url import serialised_origin
from headgate.identity import RequestSigner, asks_for_signature, read_signing_keys
from headgate.throttle.fields import Headers, text_pairs

Sign: TypeAlias = Literal["always", "when-asked"]
"""When requests are signed."""

ASKING: Final = frozenset({401, 403, 429})
"""The statuses with which an origin asks for a signature."""

MAX_ORIGINS: Final = 4_096
"""Maximum origins that have asked; the one that asked first is forgotten first."""


class AgentSigner:
    """Signs the requests of one agent with the first key of a file that is valid, or with its last key.

    `key` is the path of the file, `agent_url` where the public keys are. Raises `ConfigurationError`, which names the
    argument, for a file that cannot be used, an invalid URL or an unknown `sign`.
    """

    def __init__(self, key: str | os.PathLike[str], agent_url: str, sign: str) -> None:
        fail_if(sign not in ("always", "when-asked"), f'sign must be "always" or "when-asked", got {sign!r:.80}')
        self.when_asked = sign == "when-asked"
        with naming("key"):
            fail_if(
                not isinstance(key, str | os.PathLike) or '"kty"' in str(key),  # errors show a path
                "expected the path of a file made by: headgate keys new --agent",
            )
            advice = "make a key file with: headgate keys new --agent"
            keys = read_signing_keys(read_text(os.fspath(key), advice=advice).encode())
        for warning in key_file_warnings(os.fspath(key)):
            logging.getLogger("headgate.agent").warning(warning.removeprefix("warning: "))
        with naming("agent_url"):
            self._signers = [RequestSigner(each, agent_url, entropy=os.urandom) for each in keys]
        self._asked: dict[str, None] = {}

    def fields(self, url: str, *, now: float) -> dict[str, str]:
        """Return the fields that sign one request; none over http, or for an origin that did not ask."""
        origin = serialised_origin(url) or ""
        if not origin.startswith("https://") or (self.when_asked and origin not in self._asked):
            return {}
        valid = (each for each in self._signers if each.key.public.not_before <= now < each.key.public.expires)
        # Without a valid key it is signed nevertheless: an origin that asks would be answered without end.
        return dict(next(valid, self._signers[-1]).sign(origin, now=now))

    def is_asked(self, url: str, status: int, headers: Headers) -> bool:
        """Return whether a response asks for a signature; then sign what is sent to its origin from now on.

        For one thread at a time.
        """
        origin = serialised_origin(url) or ""
        if (
            status not in ASKING
            or not origin.startswith("https://")
            or not asks_for_signature(lines_of(text_pairs(headers), "accept-signature"))
        ):
            return False
        self._asked[origin] = None
        if len(self._asked) > MAX_ORIGINS:
            del self._asked[next(iter(self._asked))]
        return True
