"""Messages that are malformed, or that two recipients could read in two ways.

`HEADS` are request heads, each with the status of the response: an origin must not receive a byte of them. `BODIES` are
requests whose chunked body is malformed: an origin may receive its beginning, and never its end. `RESPONSES` begin with
a malformed response head: a client must receive a 502 instead. `MARKER` is a well-formed request that tests send after
a hostile one; it must neither be answered nor forwarded.
"""

MARKER = b"GET /marker HTTP/1.1\r\nHost: marker\r\n\r\n"

_GET = b"GET / HTTP/1.1\r\nHost: a\r\n"
_POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
_CHUNKED = _POST + b"Transfer-Encoding: chunked\r\n"
_SMUGGLED = b"0\r\n\r\n"

# Each of these stands where a valid one is expected.
_LENGTHS = [
    b"5, 5", b"+5", b"-5", b"-0", b"0x5", b"5a", b"1_0", b"5.0", b"5 5", b"", b"\xd9\xa5", b"\x0b5", b"9" * 19,
    b"18446744073709551621",
]  # fmt: skip
_CODINGS = [
    b"chunked, chunked", b"gzip, chunked", b"chunked, gzip", b"identity", b"xchunked", b"", b'"chunked"',
    b"chunked;q=1", b"chunked,", b"\x0bchunked", b"chunked\x00",
]  # fmt: skip
_FIELDS = [b"X\x00: y", b"X: a\x00b", b"X: a\x01b", b"X: a\x7fb", b"X\xff: y", b"X(y): z", b": value", b"nonsense"]
_HOSTS = [b"", b"a, b", b"a/b", b"u@a", b"a:8o", b"a b"]
_VERSIONS = [b"HTTP/1.10", b"HTTP/1", b"http/1.1", b"ICAP/1.1", b"HTTP/1.1 "]
_REQUEST_LINES = [
    b"GET /a b", b"GET  /", b"GET\t/\t", b" GET /", b"GET /\x00", b"GET /\x1f", b"GET /\x7f", b"GET /\xc3\xa9",
    b"GET /a#b", b"GET a", b"GET *", b"G(T /", b"/",
]  # fmt: skip
_SIZES = [
    b"\r\n", b"+5\r\n", b"-5\r\n", b"0x5\r\n", b"1_0\r\n", b"xyz\r\n", b" 5\r\n", b"5 \r\n", b"5 ;x\r\n", b"5\n",
    b"5\r", b"10000000000000005\r\n", b"0" * 99 + b"5\r\n", b"5;a\n", b"5;a\rb\r\n",
    b"5;a\x00\r\n", b"5;" + b"a" * 4096 + b"\r\n",
]  # fmt: skip

HEADS: dict[str, tuple[bytes, int]] = {
    # Which framing?
    "length and chunked": (_CHUNKED + b"Content-Length: 5\r\n\r\n" + _SMUGGLED, 400),
    "chunked and length": (_POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + _SMUGGLED, 400),
    "length zero and chunked": (_POST + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + _SMUGGLED, 400),
    "two lengths": (_POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    "the same length twice": (_POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400),
    **{f"length {one!r}": (_POST + b"Content-Length: " + one + b"\r\n\r\nhello", 400) for one in _LENGTHS},
    "length under another name": (_POST + b"Content_Length: 5\r\n\r\nhello", 400),
    "chunked in two lines": (_CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n" + _SMUGGLED, 400),
    "identity beside chunked": (_CHUNKED + b"Transfer-Encoding: identity\r\n\r\n" + _SMUGGLED, 400),
    **{f"coding {one!r}": (_POST + b"Transfer-Encoding: " + one + b"\r\n\r\n" + _SMUGGLED, 400) for one in _CODINGS},
    "coding under another name": (_POST + b"Transfer_Encoding: chunked\r\n\r\n" + _SMUGGLED, 400),
    "chunked in HTTP/1.0": (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + _SMUGGLED, 400),
    # Where does a line end, and a field?
    "bare LF everywhere": (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    "bare LF after the request line": (b"GET / HTTP/1.1\nHost: a\r\n\r\n", 400),
    "bare LF after a field": (b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
    "bare LF at the end": (b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400),
    "bare LF hides a field": (_GET + b"X: y\nTransfer-Encoding: chunked\r\n\r\n" + _SMUGGLED, 400),
    "bare CR in a value": (_GET + b"X: a\rb\r\n\r\n", 400),
    "bare CR as a line's end": (b"GET / HTTP/1.1\rHost: a\r\r", 400),
    "CR before CRLF": (_GET + b"X: a\r\r\n\r\n", 400),
    "CR CR LF at the end": (_GET + b"\r\r\n", 400),
    "space before the colon": (_POST + b"Content-Length : 5\r\n\r\nhello", 400),
    "tab before the colon": (_POST + b"Transfer-Encoding\t: chunked\r\n\r\n" + _SMUGGLED, 400),
    "space before the name": (b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "folded line": (_GET + b"X: a\r\n b\r\n\r\n", 400),
    "folded with tab": (_POST + b"Transfer-Encoding:\r\n\tchunked\r\n\r\n" + _SMUGGLED, 400),
    "first line folded": (b"GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n", 400),
    **{f"field {one!r}": (_GET + one + b"\r\n\r\n", 400) for one in _FIELDS},
    # For which host?
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (_GET + b"Host: b\r\n\r\n", 400),
    "the same host twice": (_GET + b"Host: a\r\n\r\n", 400),
    **{f"host {one!r}": (b"GET / HTTP/1.1\r\nHost: " + one + b"\r\n\r\n", 400) for one in _HOSTS},
    "two hosts in HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "URL with user": (b"GET http://a@b/ HTTP/1.1\r\nHost: b\r\n\r\n", 400),
    "URL without host": (b"GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "URL of another scheme": (b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "URL without the field": (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
    # Which request line?
    "HTTP/0.9": (b"GET /\r\n", 400),
    "HTTP/0.9 spelled out": (b"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    "HTTP/2.0": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "HTTP/1.2": (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
    "the HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    **{f"version {one!r}": (b"GET / " + one + b"\r\nHost: a\r\n\r\n", 400) for one in _VERSIONS},
    **{f"line {one!r}": (one + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400) for one in _REQUEST_LINES},
    "a method of a thousand bytes": (b"G" * 1000 + b" / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    # Too much, or not served.
    "a target of 9 KiB": (b"GET /" + b"a" * 9216 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "a target without end": (b"GET /" + b"a" * 16384, 414),
    "a field of 64 KiB": (_GET + b"X: " + b"a" * 65536 + b"\r\n\r\n", 431),
    "fields without end": (_GET + b"X: abcdefghijklmnopqrstuvwxyz\r\n" * 2400, 431),
    "a head of 33 KiB": (_GET + b"X: " + b"a" * 33_792 + b"\r\n\r\n", 431),
    "a thousand connection options": (_GET + b"Connection: " + b"a, " * 1000 + b"b\r\n\r\n", 431),
    "129 fields": (_GET + b"X:\r\n" * 128 + b"\r\n", 431),
    "129 fields with a body": (_POST + b"X:\r\n" * 127 + b"Content-Length: 0\r\n\r\n", 431),
    "CONNECT": (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", 405),
    "TRACE": (b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    "another expectation": (_POST + b"Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello", 417),
    "a connection option that is not a token": (_GET + b"Connection: close, a b\r\n\r\n", 400),
}

BODIES: dict[str, tuple[bytes, int]] = {
    **{f"size {one!r}": (_CHUNKED + b"\r\n" + one + b"hello\r\n0\r\n\r\n", 400) for one in _SIZES},
    "content longer than its size": (_CHUNKED + b"\r\n5\r\nhello!\r\n0\r\n\r\n", 400),
    "content shorter than its size": (_CHUNKED + b"\r\n9\r\nhello\r\n0\r\n\r\n", 400),
    "bare LF after the content": (_CHUNKED + b"\r\n5\r\nhello\n0\r\n\r\n", 400),
    "no end after the content": (_CHUNKED + b"\r\n5\r\nhello0\r\n\r\n", 400),
    "a trailer without colon": (_CHUNKED + b"\r\n5\r\nhello\r\n0\r\nnonsense\r\n\r\n", 400),
    "a trailer with bare LF": (_CHUNKED + b"\r\n5\r\nhello\r\n0\r\nX: y\nZ: z\r\n\r\n", 400),
    "a folded trailer": (_CHUNKED + b"\r\n5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n", 400),
    "trailers without end": (_CHUNKED + b"\r\n5\r\nhello\r\n0\r\n" + b"X: abcdefghijklmnop\r\n" * 500, 400),
    "bare LF after the last chunk": (_CHUNKED + b"\r\n5\r\nhello\r\n0\n\r\n", 400),
    "bare LF at the end": (_CHUNKED + b"\r\n5\r\nhello\r\n0\r\n\n", 400),
}

_OK = b"HTTP/1.1 200 OK\r\n"

RESPONSES: dict[str, bytes] = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "not HTTP, with a blank line": b"hello\r\n\r\n",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/0.9": b"<html>hello</html>",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a status out of range": b"HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n",
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "bare LF in a field": _OK + b"X: y\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
    "bare CR in a field": _OK + b"X: y\rSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
    "NUL": _OK + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "folded line": _OK + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "space before the colon": _OK + b"Content-Length : 0\r\n\r\n",
    "two lengths": _OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunked": _OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "length with sign": _OK + b"Content-Length: +1\r\n\r\na",
    "gzip, chunked": _OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.0 chunked": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a connection option that is not a token": _OK + b"Connection: a b\r\nContent-Length: 0\r\n\r\n",
}
