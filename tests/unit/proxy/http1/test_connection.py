"""The bytes of a refusal; connections themselves are seen through in tests/e2e."""

from headgate.proxy.connect import Refused
from headgate.proxy.http1.connection import answer


def test_a_refusal_is_written() -> None:
    refused = Refused(status=403, fields=[("Retry-After", "0"), ("Proxy-Status", "headgate; details=x")], reason="host")
    assert answer(refused, last=False) == (
        b"HTTP/1.1 403 Forbidden\r\nRetry-After: 0\r\nProxy-Status: headgate; details=x\r\nContent-Length: 0\r\n\r\n"
    )
    assert answer(Refused(status=400, reason="malformed"), last=True) == (
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
