"""Web Bot Auth: agents sign their requests, and origins verify who sent them (HTTP Message Signatures, RFC 9421).

The profile is draft-ietf-webbotauth-httpsig-protocol-01. An agent publishes its keys at a URL, names the URL in each
request, and signs. The URL is the agent's identifier once it has been fetched; a key belongs to one URL.

This package is pure: it signs, reads what a request claims, verifies the claim with a key, and reads and writes
directories of keys. Fetching them is the task of a shell. It needs the extra `sign`.
"""

from headgate.identity.directory import KeyDirectory, parse_directory, sign_directory, write_directory
from headgate.identity.keys import PublicKey, SigningKey, new_signing_key, read_signing_keys, write_signing_key
from headgate.identity.message import SignedMessage
from headgate.identity.signing import RequestSigner, accept_signature, asks_for_signature
from headgate.identity.url import AgentUrl, agent_url
from headgate.identity.verification import Claim, read_claims

__all__ = [
    "AgentUrl",
    "Claim",
    "KeyDirectory",
    "PublicKey",
    "RequestSigner",
    "SignedMessage",
    "SigningKey",
    "accept_signature",
    "agent_url",
    "asks_for_signature",
    "new_signing_key",
    "parse_directory",
    "read_claims",
    "read_signing_keys",
    "sign_directory",
    "write_directory",
    "write_signing_key",
]
