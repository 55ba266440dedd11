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
_LINE = re.compile(
    rb"PROXY (?:UNKNOWN(?: [^\r\n]*)?|TCP([46]) ([0-9a-fA-F.:]+) ([0-9a-fA-F.:]+)"
    rb" (?:0|[1-9][0-9]{0,4}) (?:0|[1-9][0-9]{0,4}))\r\n"
)
_ADDRESSES: Final[dict[bytes, type[ipaddress.IPv4Address | ipaddress.IPv6Address]]] = {
    b"4": ipaddress.IPv4Address,
    b"6": ipaddress.IPv6Address,
}
_ADDRESS_SIZES: Final = {0x11: 4, 0x21: 16, 0x00: 0, 0x31: 0}
"""The size of an address by the family: TCP over IPv4 or IPv6; unspecified and unix sockets name no client."""


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
        return _parse_binary(data) if len(data) >= 16 else None
    end = data.find(b"\n", 0, _MAX_LINE_SIZE) + 1
    if not end and len(data) < _MAX_LINE_SIZE and b"PROXY "[: len(data)] == data[:6]:
        return None
    match = _LINE.fullmatch(data[:end])
    if match is None:
        raise _malformed(data)
    version, *addresses = match.groups()
    try:
        source, _ = [_ADDRESSES[version](one.decode()) for one in addresses] if version else (None, None)
    except ValueError:
        raise _malformed(data) from None
    return ProxyHeader(end, _text(source))


def _parse_binary(data: bytes) -> ProxyHeader | None:
    command, family, length = struct.unpack_from("!BBH", data, 12)
    start, size = 16, 16 + length
    is_local = command == 0x20  # 2.2: the address block and the family are ignored
    width = 0 if is_local else _ADDRESS_SIZES.get(family, MAX_HEADER_SIZE)
    has_room = not width or 2 * width + 4 <= length  # two addresses and two ports
    if command not in {0x20, 0x21} or not has_room or size > MAX_HEADER_SIZE:
        raise _malformed(data)
    if len(data) < size:
        return None
    return ProxyHeader(size, _text(ipaddress.ip_address(data[start : start + width]) if width else None))


def _text(address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> str | None:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return None if address is None else str(mapped or address)


def _malformed(data: bytes) -> ProtocolError:
    return ProtocolError(400, f"malformed header of the PROXY protocol: {data[:40]!r}")
