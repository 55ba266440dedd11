"""Writes strings, integers and parameters of structured fields (RFC 9651, section 4.1), for the RateLimit fields."""

from headgate.http.seconds import MAX_INTEGER

__all__ = ["parameter", "sf_integer", "sf_string"]


def sf_string(text: str) -> bytes:
    """Write `text` as a String: quoted, with `"` and `\\` escaped (RFC 9651, section 4.1.6).

    A String holds printable ASCII only, so every other character is written as the percent-encoded bytes of its
    UTF-8 form; a lone surrogate is written as `?`.
    """
    written = bytearray(b'"')
    for byte in text.encode("utf-8", "replace"):
        if byte in b'"\\':
            written += b"\\%c" % byte
        elif 0x20 <= byte <= 0x7E:
            written.append(byte)
        else:
            written += b"%%%02X" % byte
    return bytes(written + b'"')


def sf_integer(number: int) -> bytes:
    """Write `number` as an Integer, clamped to fifteen digits."""
    return b"%d" % max(-MAX_INTEGER, min(MAX_INTEGER, number))


def parameter(name: bytes, number: int) -> bytes:
    """Write the parameter `;name=number` of an item (RFC 9651, section 4.1.1.2)."""
    return b";" + name + b"=" + sf_integer(number)
