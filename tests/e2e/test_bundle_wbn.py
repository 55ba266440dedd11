"""Bundles compared with the published tool `wbn`: the same exchanges give the same bytes, and it reads ours."""

import base64
import hashlib
import io
import random

import pytest

from headgate.bundle.api import open_bundle
from headgate.bundle.conversion import convert
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.format.cbor import encode
from headgate.errors import ConfigurationError
from tests.e2e.node_process import NodeProcess
from tests.webbundles import add_sections

pytestmark = pytest.mark.needs("node-wbn")
PAGE, MANIFEST = "https://example.com/", "https://example.com/manifest.webmanifest"
BOUNDARIES = [0, 1, 22, 23, 24, 25, 254, 255, 256, 257, 65_535, 65_536]
"""Lengths around which a CBOR head grows."""


class Wbn(NodeProcess):
    """Writes and reads bundles with wbn."""

    def write(self, version, steps):
        return base64.b64decode(self("write", version=version, steps=steps))

    def read(self, bundle):
        return self("read", bundle=base64.b64encode(bundle).decode())


@pytest.fixture(scope="module")
def wbn():
    with Wbn("bundles.mjs", "wbn") as process:
        yield process


def as_sent(value):
    """Return a header value as a bundle has it: wbn writes UTF-8, and we read the bytes as Latin-1."""
    return value.encode().decode("latin-1")


class Site:
    """Exchanges and sections made up from a seed."""

    def __init__(self, seed, version):
        self.draw = random.Random(seed)
        self.version = version
        urls = [PAGE, *([MANIFEST] if self.draw.random() < 0.7 else [])]
        urls += [self.url(number) for number in range(self.draw.choice([0, 1, 3, 8, 21, 22, 23, 40]))]
        self.draw.shuffle(urls)
        self.exchanges = [(url, self.draw.randint(100, 999), *self.message()) for url in dict.fromkeys(urls)]
        self.primary = PAGE if version == "b1" or self.draw.random() < 0.7 else None
        # wbn writes no manifest for b2
        self.manifest = (MANIFEST if MANIFEST in urls else PAGE) if version == "b1" else None
        self.extra = {f"extra-{number}": self.value(3) for number in range(self.draw.choice([0, 0, 1, 12]))}

    def url(self, number):
        host = self.draw.choice(["a.example", "example.com"])
        filler = "p" * self.draw.choice([0, 1, 2, 3, 210, 230, 300])
        return f"https://{host}/{filler}{number}{self.draw.choice(['', '?x=%20', '/'])}"

    def message(self):
        payload = self.draw.randbytes(self.draw.choice(BOUNDARIES[:10] * 3 + BOUNDARIES))
        names = ["ETag", "X-" + "n" * 30, "link", "Last-Modified", *(f"x-{number}" for number in range(25))]
        chosen = self.draw.sample(names, self.draw.choice([0, 1, 3, 22, 23]))
        headers = {name: self.text(self.draw.choice(BOUNDARIES[:8])) for name in chosen}
        if payload or self.draw.random() < 0.5:
            headers["Content-Type"] = "text/plain; charset=utf-8"
        return headers, payload

    def text(self, length):
        return "".join(self.draw.choice(["a", "Z", "é", "雪", "🌐", '"', ","]) for _ in range(length))

    def value(self, depth):
        kind = self.draw.choice("itlm" if depth else "it")
        if kind == "i":
            return self.draw.choice([*BOUNDARIES, 2**32 - 1, 2**32, 2**53 - 1])
        if kind == "t":
            return self.text(self.draw.choice([0, 3, 24]))
        members = [self.value(depth - 1) for _ in range(self.draw.choice([0, 2, 25]))]
        return members if kind == "l" else {self.text(5) + str(number): member for number, member in enumerate(members)}

    def steps(self):
        """Say what wbn's builder is asked, in order."""
        head = [["setPrimaryURL", self.primary]] if self.primary else []
        head += [["setManifestURL", self.manifest]] if self.manifest else []
        exchanges = [[*exchange[:3], base64.b64encode(exchange[3]).decode()] for exchange in self.exchanges]
        return [
            *head,
            *(["addSection", name, value] for name, value in self.extra.items()),
            *(["addExchange", *exchange] for exchange in exchanges),
        ]

    def written(self):
        """Write it with our writer."""
        target = io.BytesIO()
        sections = {name: encode(value) for name, value in self.extra.items()}
        urls = {"primary_url": self.primary, "manifest_url": self.manifest}
        with BundleWriter(target, version=self.version, **urls) as writer:
            add_sections(writer, sections)
            for url, status, headers, payload in self.exchanges:
                sent = {name: as_sent(value) for name, value in headers.items()}
                writer.add(url, status=status, headers=sent, payload=payload)
        return target.getvalue()

    def meant(self):
        """Say what a reader should find."""
        return {
            url: {
                "status": status,
                "headers": {name.lower(): value for name, value in headers.items()},
                "length": len(payload),
                "sha256": hashlib.sha256(payload).hexdigest(),
            }
            for url, status, headers, payload in self.exchanges
        }


@pytest.mark.parametrize("version", ["b1", "b2"])
@pytest.mark.parametrize("first", range(0, 160, 20))
def test_the_same_exchanges_give_the_same_bytes(wbn, version, first):
    for seed in range(first, first + 20):
        site = Site(seed, version)
        assert site.written() == wbn.write(version, site.steps()), seed


@pytest.mark.parametrize("version", ["b1", "b2"])
def test_wbn_reads_our_bundles_identically(wbn, version):
    for seed in range(1_000, 1_040):
        site = Site(seed, version)
        found = wbn.read(site.written())
        assert found == {
            "version": version,
            "primary": site.primary,
            "manifest": site.manifest,
            "responses": site.meant(),
        }, seed


def test_an_unreachable_response_is_written_by_wbn_and_rejected_by_us(wbn):
    """Of a URL that is added twice, wbn's index has the later response; the earlier is in the bundle all the same."""
    twice = [["addExchange", PAGE, 200, {"content-type": "a/b"}, text] for text in ("b25l", "dHdv")]
    with open_bundle(wbn.write("b2", twice)) as bundle:
        assert [bytes(exchange.response.payload) for exchange in bundle.exchanges()] == [b"two"]
        assert b"one" in bytes(bundle.read(0, bundle.size))
    writer = BundleWriter(io.BytesIO(), version="b2")
    writer.add(PAGE, headers={"content-type": "a/b"}, payload=b"one")
    with pytest.raises(ConfigurationError, match="added before"):
        writer.add(PAGE, headers={"content-type": "a/b"}, payload=b"two")


@pytest.mark.parametrize(("version", "other"), [("b1", "b2"), ("b2", "b1")])
def test_wbn_reads_its_bundles_after_our_convert(wbn, version, other):
    for seed in range(2_000, 2_010):
        site = Site(seed, version)
        site.primary = PAGE
        target = io.BytesIO()
        with open_bundle(wbn.write(version, site.steps()), profile="compat") as bundle:
            convert(bundle, target, version=other, manifest_url=PAGE if other == "b1" else None)
        found = wbn.read(target.getvalue())
        assert (found["version"], found["primary"]) == (other, PAGE)
        assert found["manifest"] == (PAGE if other == "b1" else site.manifest)
        assert found["responses"] == site.meant()
