"""The header of the PROXY protocol, versions 1 and 2: a proxy names the client whose connection it passes on.

Source: proxy-protocol.txt of HAProxy, version of 2020/03/05. The header precedes all other bytes of a connection.
"""

import ipaddress
import re
import struct
from typing import Final, NamedTuple

from headgate.errors import ProtocolError

MAX_HEADER_SIZE: Final = 4_096
"""Bytes of a header of version 2; senders are asked for at most 536, but add certificates of clients."""
_MAX_LINE_SIZE: Final = 107
"""Bytes of a header of version 1 (2.1)."""
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED_SIZE: Final = 16
_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_LINE = re.compile(
    rb"PROXY (?:UNKNOWN(?: [^\r\n]*)?|(?:TCP4|(TCP6)) ([0-9a-fA-F.:]{2,45}) ([0-9a-fA-F.:]{2,45})"
    rb" (0|[1-9][0-9]{0,4}) (0|[1-9][0-9]{0,4}))\r\n"
)
_ADDRESSES: Final = {0x11: 4, 0x21: 16}
"""The size of an address of each family of TCP connections."""
_UNNAMED: Final = frozenset({0x00, 0x31})
"""The families of connections that have no address: unspecified, and unix sockets."""


class ProxyHeader(NamedTuple):
    """A header that is whole and valid."""

    size: int
    """Its size in bytes; what follows belongs to the connection."""
    source: str | None
    """The address of the client; None for a connection that the proxy has opened for itself."""


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the header at the start of `data`; returns None while it is incomplete.

    Raises `ProtocolError` for a malformed header, as soon as that is certain.
    """
    if data.startswith(_SIGNATURE[: len(data)]):
        return _parse_binary(data) if len(data) >= _FIXED_SIZE else None
    end = data.find(b"\n", 0, _MAX_LINE_SIZE) + 1
    if not end and len(data) < _MAX_LINE_SIZE and b"PROXY "[: len(data)] == data[:6]:
        return None
    match = _LINE.fullmatch(data[:end])
    if match is None:
        raise _malformed(data)
    family, source, target, *ports = match.groups()
    if source is None:
        return ProxyHeader(end, None)
    try:
        addresses = [ipaddress.ip_address(one.decode()) for one in (source, target)]
    except ValueError:
        raise _malformed(data) from None
    version = 6 if family else 4
    if any(one.version != version for one in addresses) or any(int(port) > 65_535 for port in ports):
        raise _malformed(data)
    return ProxyHeader(end, _text(addresses[0]))


def _parse_binary(data: bytes) -> ProxyHeader | None:
    command, family, length = struct.unpack_from("!BBH", data, 12)
    size = _FIXED_SIZE + length
    address_size = _ADDRESSES.get(family, 0)
    is_local = command == _LOCAL  # 2.2: the address block and the family are ignored
    has_address = address_size > 0 and 2 * address_size + 4 <= length  # two addresses and two ports
    is_valid = is_local or (command == _PROXY and (has_address or family in _UNNAMED))
    if not is_valid or size > MAX_HEADER_SIZE:
        raise _malformed(data)
    if len(data) < size:
        return None
    source = ipaddress.ip_address(data[_FIXED_SIZE : _FIXED_SIZE + address_size]) if has_address else None
    return ProxyHeader(size, None if source is None or is_local else _text(source))


def _text(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _malformed(data: bytes) -> ProtocolError:
    return ProtocolError(400, f"malformed header of the PROXY protocol: {data[:40]!r}")
