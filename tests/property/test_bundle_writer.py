"""Laws of writing: strict readers read what was written, in its only encoding."""

import io
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.bundle.api import open_bundle
from headgate.bundle.conversion import convert
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.format.cbor import encode
from headgate.errors import ConfigurationError, HeadgateError
from headgate.http.url import parse_url
from tests.cbor_values import decode
from tests.webbundles import add_sections

PAGE = "https://example.com/"
VERSIONS = st.sampled_from(["b1", "b2", "draft-01"])
NAMES = st.from_regex(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,30}", fullmatch=True)
VALUES = st.text(st.characters(max_codepoint=0xFF, exclude_categories=["Cc"]), max_size=40) | st.sampled_from(
    [23, 24, 255, 256]
).map(lambda size: "v" * size)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
    lambda pairs: [*((name, value) for name, value in pairs if name.lower() not in ("content-type", "set-cookie"))]
)
PAYLOADS = st.binary(max_size=40) | st.sampled_from([23, 24, 255, 256, 65_535, 65_536, 70_000]).map(bytes)
PATHS = st.text("ab/.%é[]<>|\\ ?=&", max_size=40)
SECTIONS = st.dictionaries(
    st.text(min_size=1, max_size=30).filter(lambda name: name not in KNOWN),
    st.recursive(
        st.integers(0, 2**64 - 1) | st.binary(max_size=30) | st.text(max_size=30),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
        max_leaves=8,
    ).map(encode),
    max_size=4,
)
KNOWN = {"index", "manifest", "critical", "signatures", "responses", "primary"}
AXES = {"Accept-Encoding": ["gzip", "br", "zstd"], "Accept-Language": ["en", "*", "fr", "de-CH"], "Accept": ["a/b"]}


@st.composite
def exchanges(draw):
    """Return URLs with arguments of `add`; the first is the page."""
    urls = [PAGE, *draw(st.lists(PATHS.map(lambda path: f"{PAGE}x{path}"), max_size=4))]
    return [
        (url, {"status": draw(st.integers(100, 999)), "headers": [*draw(HEADERS), ("Content-Type", "a/b")],
               "payload": draw(PAYLOADS)})
        for url in {parse_url(url): url for url in urls}.values()
    ]  # fmt: skip


def written(added, **options):
    target = io.BytesIO()
    sections, order = options.pop("sections", {}), options.pop("section_order", ())
    with BundleWriter(target, **{"primary_url": PAGE, **options}) as writer:
        add_sections(writer, sections, order)
        for url, more in added:
            writer.add(url, **more)
    return target.getvalue()


def meant(headers):
    """Combine headers as FETCH does."""
    combined = {}
    for name, value in headers:
        stripped, known = value.strip("\t\n\r "), name.lower()
        combined[known] = ", ".join(filter(None, (combined.get(known), stripped)))
    return combined


def held(bundle):
    return [
        (stored.url, stored.variant_key, stored.response.status, stored.response.stored_headers,
         bytes(stored.response.payload))
        for stored in bundle.exchanges()
    ]  # fmt: skip


@given(exchanges(), VERSIONS, SECTIONS, st.randoms())
def test_strict_readers_find_the_exchanges(added, version, sections, chance):
    order = ["manifest", "index", *sections] + (["primary"] if version == "b2" else [])
    chance.shuffle(order)
    source = written(added, version=version, manifest_url=PAGE, sections=sections, section_order=order)
    with open_bundle(source) as bundle:
        metadata = bundle.metadata
        assert (metadata.version, metadata.primary_url, metadata.manifest_url) == (version, PAGE, PAGE)
        assert metadata.length == len(source)
        assert [section.name for section in metadata.sections] == [*order, "responses"]
        assert held(bundle) == [
            (parse_url(url), None, more["status"], meant(more["headers"]), more["payload"]) for url, more in added
        ]


@given(exchanges(), VERSIONS, SECTIONS)
def test_bundles_are_deterministic_cbor(added, version, sections):
    """4: "a single CBOR item satisfying the core deterministic encoding requirements"."""
    source = written(added, version=version, manifest_url=PAGE, sections=sections)
    # The document's 0x84 promises two items fewer than its own CDDL has.
    item = b"\x86" + source[1:] if version == "draft-01" else source
    assert encode(decode(item)) == item


@st.composite
def negotiated(draw):
    """Return a Variants value, and the keys of each response."""
    names = draw(st.lists(st.sampled_from(sorted(AXES)), min_size=1, unique=True))
    values = [draw(st.lists(st.sampled_from(AXES[name]), min_size=1, unique=True)) for name in names]
    keys = [""]
    for choices in values:
        keys = [f"{key};{value}".lstrip(";") for key in keys for value in choices]
    keys = [key.replace("*", '"*"') for key in keys]
    groups = {}
    for key in draw(st.permutations(keys)):
        groups.setdefault(draw(st.integers(0, 3)), []).append(key)
    variants = ", ".join(";".join([name, *choices]) for name, choices in zip(names, values, strict=True))
    return variants.replace("*", '"*"'), keys, list(groups.values())


@given(negotiated(), st.sampled_from(["b1", "draft-01"]))
def test_every_key_has_its_response(negotiation, version):
    variants, keys, groups = negotiation
    added = [
        (PAGE, {"headers": {"content-type": "a/b"}, "payload": "|".join(group).encode(), "variants": variants,
                "variant_key": group})
        for group in groups
    ]  # fmt: skip
    with open_bundle(written(added, version=version, manifest_url=PAGE)) as bundle:
        assert list(bundle.metadata.requests[PAGE].locations) == keys
        assert len(set(bundle.metadata.requests[PAGE].locations.values())) == len(groups)
        for group in groups:
            for key in group:
                assert bytes(bundle.response(PAGE, key).payload) == "|".join(group).encode()


@given(exchanges(), VERSIONS, VERSIONS, SECTIONS)
def test_conversion_keeps_every_exchange(added, version, other, sections):
    source = written(added, version=version, manifest_url=PAGE, sections=sections)
    there, back = io.BytesIO(), io.BytesIO()
    with open_bundle(source) as bundle:
        assert convert(bundle, there, version=other) == []
        with open_bundle(there.getvalue()) as converted:
            assert held(converted) == held(bundle)
            assert convert(converted, back, version=version) == []
    assert back.getvalue() == source


ANYTHING = st.text(max_size=20)


@given(
    st.lists(
        st.tuples(
            ANYTHING | PATHS.map(lambda path: PAGE + path),
            st.integers(90, 1010),
            st.lists(st.tuples(ANYTHING | NAMES, ANYTHING | VALUES), max_size=4),
            st.binary(max_size=30) | ANYTHING | st.none() | st.lists(st.binary(max_size=4) | ANYTHING, max_size=3),
            ANYTHING | st.none() | st.just("Accept;a/b;a/c"),
            ANYTHING | st.none() | st.lists(st.sampled_from(["a/b", "a/c"]), max_size=3),
        ),
        max_size=5,
    ),
    VERSIONS,
)
@example([(PAGE, 200, [("Content-Type", "a")], b"", "Accept;a/b;a/c", ["a/b", "a/c"])], "b1")
def test_any_arguments_are_refused_or_read(added, version):
    """A strict reader accepts what was written, and only documented exceptions escape."""
    target = io.BytesIO()
    writer = BundleWriter(target, version=version, primary_url=PAGE, manifest_url=PAGE)
    writer.add(f"{PAGE}first", headers={"content-type": "a/b"}, payload=b"first")
    for url, status, headers, payload, variants, key in added:
        try:
            writer.add(
                url, status=status, headers=[*headers, ("content-type", "a/b")], payload=payload, variants=variants,
                variant_key=key,
            )  # fmt: skip
        except ConfigurationError:
            continue
    with suppress(ConfigurationError):
        writer.add(PAGE, headers={"content-type": "a/b"}, payload=b"page")
    try:
        writer.close()
    except HeadgateError:
        assert target.getvalue() == b""
        return
    assert writer.remarks() == []
    with open_bundle(target.getvalue()) as bundle:
        assert bytes(bundle.response(f"{PAGE}first").payload) == b"first"
        for stored in bundle.exchanges():
            assert not isinstance(stored.response, HeadgateError)
