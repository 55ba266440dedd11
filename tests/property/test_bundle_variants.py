"""Laws of variants: written values are parsed unchanged, and selection follows the draft."""

from collections.abc import Iterable
from itertools import product

from hypothesis import event, given
from hypothesis import strategies as st

from headgate.bundle.variants import (
    MECHANISMS,
    Axis,
    count_keys,
    measure_keys,
    parse_key,
    parse_variants,
    select_key,
    variant_keys,
    write_key,
)

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=6)
VALUES = (
    st.sampled_from(["gzip", "br", "GZIP", "identity", "en", "en-GB", "fr", "text/html", "text/plain", "*"]) | PRINTABLE
)


def written(axes: Iterable[Axis]) -> str:
    return ", ".join(write_key((axis.name, *axis.values)) for axis in axes)


ANY_AXES = st.lists(st.builds(Axis, PRINTABLE, st.lists(VALUES, max_size=4).map(tuple)), min_size=1, max_size=4)
AXES = st.lists(
    st.builds(
        Axis,
        st.sampled_from(["Accept", "accept-encoding", "Accept-Encoding", "ACCEPT-LANGUAGE"]),
        st.lists(
            st.sampled_from(["gzip", "br", "en", "EN-gb", "text/html", "text/plain", "Identity"]) | VALUES, max_size=4
        )
        .filter(bool)
        .map(tuple),
    ),
    min_size=1,
    max_size=4,
)
WEIGHTS = st.sampled_from(["", ";q=1", ";q=0.5", "; Q=0.9", ";q=0.001", ";q=", ";a=b;q=0.3"])
REFUSALS = st.just(";q=0") | WEIGHTS
MEMBERS = st.sampled_from(["*", "*/*", "text/*", "text/html", "gzip", "br", "Identity", "en", "EN-gb", "fr", "", "?"])
FIELDS = st.lists(st.tuples(MEMBERS | PRINTABLE, REFUSALS).map("".join), max_size=6).map(", ".join)
REQUESTS = st.fixed_dictionaries({}, optional=dict.fromkeys(MECHANISMS, FIELDS))
OTHER_NAMES = st.text("abEN-.'$", min_size=1, max_size=4)
# Close to what is meant, so that more than the first character is reached.
PIECES = st.sampled_from(["a", "text/html", '"b"', '"\\"\\\\ "', '""']) | st.sampled_from(
    ['"', '"\\', "1", "*", "é", "", "a b"]
)
NEARLY = st.lists(st.tuples(PIECES, st.sampled_from([";", "; ", "\t;", ",", " , ", ", ", " ", ""])).map("".join)).map(
    lambda pieces: "".join(pieces).rstrip(";, ")
)


def weighted(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, str]]]:
    """Return members and their weights, without duplicates."""
    return st.lists(st.tuples(names | OTHER_NAMES, WEIGHTS), max_size=5, unique_by=lambda member: member[0].lower())


@given(ANY_AXES)
def test_written_axes_are_parsed_unchanged(axes: list[Axis]) -> None:
    assert parse_variants(written(axes)) == tuple(axes)


@given(st.lists(VALUES, min_size=1))
def test_written_keys_are_parsed_unchanged(values: list[str]) -> None:
    assert parse_key(write_key(values)) == tuple(values)


@given(NEARLY | st.text())
def test_any_text_is_parsed_or_invalid(text: str) -> None:
    axes, values = parse_variants(text), parse_key(text)
    event("no value" if axes is None else "no key" if values is None else "a key")
    if axes is not None:
        assert parse_variants(written(axes)) == axes
    if values is not None:
        assert parse_key(write_key(values)) == values


@given(ANY_AXES)
def test_count_and_size_of_keys_equal_those_of_the_product(axes: list[Axis]) -> None:
    keys = list(variant_keys(axis.values for axis in axes))
    assert keys == [write_key(values) for values in product(*(axis.values for axis in axes))]
    assert count_keys(axes) == len(keys)
    assert measure_keys(axes) == sum(map(len, keys))
    assert len(set(keys)) == len(set(product(*(axis.values for axis in axes))))


@given(AXES, REQUESTS)
def test_first_possible_key_of_the_draft_is_selected(axes: list[Axis], request: dict[str, str]) -> None:
    """Compute Possible Keys (section 4.1), made whole."""
    facets = [MECHANISMS[axis.name.lower()](request.get(axis.name.lower()))(axis.values) for axis in axes]
    possible = [write_key(values) for values in product(*facets)]
    there = set(variant_keys(axis.values for axis in axes))
    chosen = select_key(axes, request)
    event("none" if chosen is None else "the first" if chosen == possible[0] else "a later one")
    assert chosen == next((key for key in possible if key in there), None)


@given(AXES, REQUESTS, st.data())
def test_case_and_order_of_request_fields_do_not_matter(
    axes: list[Axis], request: dict[str, str], data: st.DataObject
) -> None:
    names = data.draw(st.permutations(sorted(request)))
    respelt = {data.draw(st.sampled_from([name, name.upper(), name.title()])): request[name] for name in names}
    assert select_key(axes, respelt | {"host": "a"}) == select_key(axes, request)


@given(AXES, st.dictionaries(st.text(max_size=20) | st.sampled_from(sorted(MECHANISMS)), st.text() | FIELDS))
def test_any_request_headers_are_accepted(axes: list[Axis], request: dict[str, str]) -> None:
    chosen = select_key(axes, request)
    assert chosen is None or chosen in set(variant_keys(axis.values for axis in axes))


@given(
    weighted(st.sampled_from(["gzip", "br", "Identity", "zstd"])),
    st.lists(st.sampled_from(["gzip", "br", "identity", "x"]), unique=True),
)
def test_codings_are_sorted_as_in_the_draft(members: list[tuple[str, str]], values: list[str]) -> None:
    """A.2, for a field without `*`, duplicates and zero weights: steps 1 to 6, literally."""
    codings = by_weight(members)
    if "identity" not in codings:
        codings.append("identity")
    available = [*values, "identity"]
    expected = [next(value for value in available if value == coding) for coding in codings if coding in available]
    assert MECHANISMS["accept-encoding"](", ".join(map("".join, members)))(values) == expected


@given(
    weighted(st.sampled_from(["*", "en", "en-GB", "fr", "de-CH"])),
    st.lists(st.sampled_from(["en", "en-gb", "en-us", "fr", "de", "de-ch-1901"]), unique=True),
)
def test_languages_are_sorted_as_in_the_draft(members: list[tuple[str, str]], values: list[str]) -> None:
    """A.3, for a field without duplicates and zero weights: steps 1 to 5, literally."""
    expected: list[str] = []
    for language_range in by_weight(members):
        expected += [
            value for value in values if language_range in ("*", value) or value.startswith(f"{language_range}-")
        ]
    expected = list(dict.fromkeys(expected)) or values[:1]
    assert MECHANISMS["accept-language"](", ".join(map("".join, members)))(values) == expected


def by_weight(members: list[tuple[str, str]]) -> list[str]:
    """Return the names of the members, in lower case, "ordered by their weight, highest to lowest"."""
    names = [name.lower() for name, _ in members]
    weights = {"": 1.0, ";q=1": 1.0, ";q=0.5": 0.5, "; Q=0.9": 0.9, ";q=0.001": 0.001, ";q=": 1.0, ";a=b;q=0.3": 0.3}
    order = sorted(range(len(names)), key=lambda place: -weights[members[place][1]])
    return [names[place] for place in order]
