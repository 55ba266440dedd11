"""The loop that decodes header maps gives the results and the errors of the document's steps."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.bundle.format import headers
from headgate.bundle.format.cbor import StepError, encode

NAMES = st.one_of(
    st.sampled_from(
        [
            b":status",
            b"etag",
            b"content-type",
            b"vary",
            b"x-own",
            b"access-control-allow-origin",
            b"x" * 24,
            b"y" * 260,
            b"Etag",
            b":path",
            b"",
            b"a b",
            b"link",
        ]
    ),
    st.binary(max_size=30),
)
VALUES = st.one_of(
    st.sampled_from([b"200", b"304", b"2000", b"text/html", b"", b" x", b"x ", b"a\nb", b"x" * 24, b"x" * 300]),
    st.binary(max_size=40),
)
MANY = {b"x-%d" % number: b"v" for number in range(22)}
"""With a few more, these are as many headers as take a head of two bytes."""
MAPS = st.builds(
    lambda fields, many: encode(many | fields), st.dictionaries(NAMES, VALUES, max_size=8), st.sampled_from([{}, MANY])
)


@st.composite
def changed(draw, sources):
    """Return bytes in which sometimes one byte is changed, removed or inserted, or which end early."""
    source = draw(sources)
    if source and draw(st.integers(0, 2)):
        at = draw(st.integers(0, len(source) - 1))
        byte = bytes([draw(st.integers(0, 255))])
        source = draw(st.sampled_from([source[:at] + byte + source[at + 1 :], source[:at] + source[at + 1 :],
                                       source[:at] + byte + source[at:], source[:at]]))  # fmt: skip
    return source


@given(changed(MAPS))
def test_header_loop_equals_the_steps(source):
    assert decoded(headers.decode_headers, source) == decoded(headers._decode_by_steps, source)


def decoded(decode, source):
    try:
        status, fields = decode(source, 7)
    except StepError as error:
        return error.reason, error.step, error.offset
    return status, list(fields.items())
