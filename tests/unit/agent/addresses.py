"""URLs as people write them, and the one target that they are to a throttle, whichever library asks for them."""

TARGETS = {
    "http://example.com": "http://example.com/",
    "http://name:word@EXAMPLE.com:80/Path?query#there": "http://example.com/Path",
    "https://example.com:443/a/./b/../c//d": "https://example.com/a/c//d",
    "http://example.com:8080/a;b=c,d": "http://example.com:8080/a;b=c,d",
    "http://bücher.example/": "http://xn--bcher-kva.example/",
    "http://xn--bcher-kva.example/": "http://xn--bcher-kva.example/",
    "http://example.com/café": "http://example.com/caf%C3%A9",
    "http://example.com/caf%C3%A9": "http://example.com/caf%C3%A9",
    "http://example.com/caf%E9": "http://example.com/caf%E9",
    "http://example.com/a b": "http://example.com/a%20b",
    "http://example.com/a%2Fb": "http://example.com/a%2Fb",
    "http://127.1/": "http://127.0.0.1/",
    "http://[0::1]:80/": "http://[::1]/",
}
