"""The URL that identifies an agent: where its keys are published."""

import re
from typing import Final, NamedTuple

from headgate.http.url import has_credentials, has_fragment, parse_url

PATH: Final = "/.well-known/http-message-signatures-directory"
"""The path of a directory that stands for its whole host."""

MAX_URL_SIZE: Final = 240
"""Characters of an agent's URL: an identifier on the bus has at most 255 bytes."""

_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9\-._~]")


class AgentUrl(NamedTuple):
    """Where to fetch an agent's keys, and what identifies the agent once they are fetched."""

    fetch: str
    """The URL to fetch, as sent, in normal form."""
    identifier: str
    """The URL without its query: "Otherwise one key set would yield an identifier per spelling"."""

    @property
    def is_well_known(self) -> bool:
        """Whether the URL stands for its whole host."""
        return self.identifier.endswith(PATH) and self.identifier.count("/") == 2 + PATH.count("/")


def agent_url(text: str) -> AgentUrl | None:
    """Parse the URL of an agent; None unless it is an absolute https URL without credentials and fragment.

    A URL without a path is that of the well-known directory of its host, as in the drafts before
    draft-ietf-webbotauth-httpsig-protocol-01, which deployed agents follow.
    """
    url = parse_url(text) if text.isascii() and len(text) <= MAX_URL_SIZE else None
    if url is None or not url.startswith("https://") or has_credentials(url) or has_fragment(url):
        return None
    base, mark, query = url.partition("?")
    # RFC 3986, 6.2.2: the parser leaves percent-encoded octets as they are.
    base = _ESCAPE.sub(_normal_escape, base)
    if base.endswith("/") and base.count("/") == 3 and not mark:
        base = base[:-1] + PATH
    return AgentUrl(base + mark + query, base) if len(base) <= MAX_URL_SIZE else None


def _normal_escape(match: re.Match[str]) -> str:
    character = chr(int(match[0][1:], 16))
    return character if _UNRESERVED.fullmatch(character) else match[0].upper()
