"""CURVE keys of the bus: key pairs, the files that contain them, and lists of allowed keys.

This module opens no socket. A key is 40 characters of Z85 (ZeroMQ RFC 32). A key file is a certificate as czmq and
pyzmq read and write it, or one line with a key.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import zmq
from zmq.utils import z85

from headgate.errors import ConfigurationError, fail_if, reason_of

KEY_SIZE = 40
"""Characters of a key."""

_MAX_FILE_SIZE = 1_048_576
"""Maximum bytes of a file of keys: 20,000 keys with names."""

_KEY = re.compile(rb"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_CERTIFICATE_LINE = re.compile(rb"\s*(public|secret)-key\s*=\s*[\"']?([^\"'\s]*)[\"']?\s*")
_IGNORED_LINE = re.compile(rb"\s*(#.*)?|(metadata|curve)\s*|\s+[A-Za-z0-9-]{1,39}\s*=\s.*")
"""A comment, or another line of a certificate."""
_CREATE = "create keys with: headgate keys new -o DIR"
_EXPECTED = f"expected {KEY_SIZE} characters of Z85, or a file that `headgate keys new` has created"

_KEY_PAIR_FORM = """\
# CURVE key of headgate. SECRET: keep this file on the machine that uses it.
# Used by --curve-key (curve_key of [master], [gate], [router] and [sidecar]).
curve
    public-key = "{public}"
    secret-key = "{secret}"
"""
_PUBLIC_KEY_FORM = """\
# Public CURVE key of headgate; not a secret.
# Of a gate or sidecar: add it to the --curve-allow file of its master or router. Of a master: its gates, sidecars and
# routers need it as --curve-server. Of a router: both.
curve
    public-key = "{public}"
"""


class KeyPair(NamedTuple):
    """A secret key and its public key, in Z85."""

    public: bytes
    secret: bytes

    def secret_file(self) -> bytes:
        """Return the content of the file with both keys."""
        return _KEY_PAIR_FORM.format(public=self.public.decode(), secret=self.secret.decode()).encode()

    def public_file(self) -> bytes:
        """Return the content of the file with the public key."""
        return _PUBLIC_KEY_FORM.format(public=self.public.decode()).encode()


class AllowedKey(NamedTuple):
    """What a list of allowed keys says about one of them."""

    name: str = ""
    """Its name; empty if it has none."""
    domains: frozenset[str] = frozenset()
    """The domains that it may account for, and whose holds it may receive; empty for all."""


class ServerKeys(NamedTuple):
    """What the side that binds needs: its own keys, and the public keys of the peers that may connect."""

    own: KeyPair
    allowed: Mapping[bytes, AllowedKey]


class ClientKeys(NamedTuple):
    """What the side that connects needs: its own keys, and the public key of the server."""

    own: KeyPair
    server: bytes


def new_key_pair() -> KeyPair:
    """Create a key pair.

    Neither key begins with "#", which begins a comment in a list of keys, or "-", which begins an option of a command.
    """
    while True:
        pair = KeyPair(*zmq.curve_keypair())
        if not any(key.startswith((b"#", b"-")) for key in pair):
            return pair


def read_server_keys(key_file: str, allow_file: str, section: str = "master") -> ServerKeys | None:
    """Read the files of `curve_key` and `curve_allow` in a section of the configuration; None if neither is set.

    Without a list of allowed keys, every peer that knows the public key could connect, so both are required. Raises
    `ConfigurationError`.
    """
    if not key_file and not allow_file:
        return None
    fail_if(
        not allow_file,
        f"{section}.curve_key needs {section}.curve_allow (--curve-allow), a file with the public keys that may "
        "connect, one per line: encryption alone would admit every peer",
    )
    fail_if(not key_file, f"{section}.curve_allow needs {section}.curve_key (--curve-key); {_CREATE}")
    return ServerKeys(read_key_pair(key_file), read_allowed_keys(allow_file))


def read_client_keys(key_file: str, servers: Sequence[str], section: str = "gate") -> tuple[ClientKeys, ...] | None:
    """Read the file of `curve_key`, and each of `curve_server`, a key or a file; None if neither is set.

    Raises `ConfigurationError`.
    """
    if not key_file and not any(servers):
        return None
    fail_if(
        not any(servers),
        f"{section}.curve_key needs {section}.curve_server (--curve-server), the public key of the master",
    )
    fail_if(not key_file, f"{section}.curve_server needs {section}.curve_key (--curve-key); {_CREATE}")
    own = read_key_pair(key_file)
    return tuple(ClientKeys(own, read_public_key(server)) for server in servers)


def keys_of_masters(keys: ClientKeys | Sequence[ClientKeys | None] | None, count: int) -> Sequence[ClientKeys | None]:
    """Return the keys for each of `count` masters; one for all, if only one is given.

    Raises `ConfigurationError` for another number of keys.
    """
    if keys is None or isinstance(keys, ClientKeys):
        return [keys] * count
    if len(keys) == 1:
        return list(keys) * count
    if len(keys) != count:
        noun = "master" if count == 1 else "masters"
        raise ConfigurationError(
            f"curve_server (--curve-server) lists {len(keys)} keys for {count} {noun}; list one for all masters, or "
            "one for each of them, in the order of master (--master)"
        )
    return keys


def read_key_pair(file: str) -> KeyPair:
    """Read a secret key from a file, and its public key. Raises `ConfigurationError`."""
    content = _read(file)
    keys = _certificate(content)
    fail_if(
        b"public" in keys and b"secret" not in keys,
        f"{file}: contains a public key only; name the file with the secret key",
    )
    secret = _checked(keys.get(b"secret") or content.strip(), file)
    public = zmq.curve_public(secret)
    fail_if(
        keys.get(b"public", public) != public, f"{file}: the public key does not belong to the secret key; {_CREATE}"
    )
    return KeyPair(public, secret)


def read_public_key(text: str) -> bytes:
    """Return a public key that is given as itself or as the name of a file. Raises `ConfigurationError`."""
    if _KEY.fullmatch(text.encode()) and not Path(text).is_file():
        return _checked(text.encode(), text)
    content = _read(text)
    return _checked(_certificate(content).get(b"public") or content.strip(), text)


def read_allowed_keys(file: str) -> dict[bytes, AllowedKey]:
    """Read public keys: lines of the form ``KEY [NAME [DOMAIN ...]]``; comments with #; and certificates.

    Raises `ConfigurationError` for a file that is missing, malformed, has no key, or has one twice.
    """
    found: dict[bytes, AllowedKey] = {}
    for number, line in enumerate(_read(file).splitlines(), start=1):
        words = line.partition(b" #")[0].split()
        match = _CERTIFICATE_LINE.fullmatch(line)
        if match is not None:
            words = [match[2]] if match[1] == b"public" else []
        if not words or (match is None and _IGNORED_LINE.fullmatch(line)):
            continue
        key = _checked(words[0], f"{file} line {number}")
        name, *domains = [word.decode("utf-8", "surrogateescape") for word in words[1:]] or [""]
        if found.setdefault(key, allowed := AllowedKey(name, frozenset(domains))) != allowed:
            raise ConfigurationError(f"{file} line {number}: this key is listed twice, with different names or domains")
    fail_if(not found, f"{file}: no key in it; expected one public key per line")
    return found


def _certificate(content: bytes) -> dict[bytes, bytes]:
    """Return the keys of a certificate by kind, "public" and "secret"; empty for other content."""
    matches = map(_CERTIFICATE_LINE.fullmatch, content.splitlines())
    return {match[1]: match[2] for match in matches if match is not None}


def _checked(key: bytes, place: str) -> bytes:
    """Return a valid key. The error does not contain the key, which may be a secret one."""
    try:
        if _KEY.fullmatch(key):
            z85.decode(key)
            return key
    except struct.error:  # five characters that exceed 32 bits
        pass
    raise ConfigurationError(f"{place}: not a key; {_EXPECTED}")


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(_MAX_FILE_SIZE + 1)
    except (OSError, ValueError) as error:
        advice = "make it readable for this user" if isinstance(error, PermissionError) else _CREATE
        raise ConfigurationError(f"{file}: {reason_of(error)}; {advice}") from None
    fail_if(len(content) > _MAX_FILE_SIZE, f"{file}: more than {_MAX_FILE_SIZE} bytes; {_EXPECTED}")
    return content
