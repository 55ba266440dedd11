"""For any URLs, extracted files stay below one directory, and each payload has a file of its own."""

from pathlib import PurePosixPath, PureWindowsPath

from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.bundle.extract import FileNames

SEGMENTS = st.sampled_from([
    "a", "A", "b", "a~2", "", ".", "..", "...", "index.html", "con", "NUL.txt", "%2e%2e", "x" * 300, "é", "\\", "C:",
    "\0",
])  # fmt: skip
URLS = st.one_of(
    st.builds(
        lambda start, segments, query: start + "/".join(segments) + query,
        st.sampled_from(["http://h/", "https://h/", "http://H/", "urn:", "data:/", "foo://", "foo:///", ""]),
        st.lists(SEGMENTS, max_size=5),
        st.sampled_from(["", "?", "?a/../b", "#f"]),
    ),
    st.text(max_size=30),
)
KEYS = st.none() | st.sampled_from(["gzip;en", "GZIP;en", "../../x", ""]) | st.text(max_size=10)


@given(st.lists(st.tuples(URLS, KEYS), max_size=30))
def test_names_stay_below_the_directory_and_unique(asked):
    names = FileNames()
    paths = [PurePosixPath(name) for name in (names.name(url, key) for url, key in asked) if name]
    assert len(paths) == len(asked)
    folded = {PurePosixPath(str(path).casefold()) for path in paths}
    assert len(folded) == len(paths)
    for path in paths:
        text = str(path)
        assert text.isascii()
        assert text.isprintable()
        assert not path.is_absolute()
        assert not {"", ".", ".."} & set(text.split("/"))
        assert not PureWindowsPath(text).is_reserved()
        assert not set(text) & set('<>:"\\|?*')
        assert all(len(part) <= 255 and not part.endswith((".", " ")) for part in path.parts)
        # What is a file to one is no directory to another.
        assert not folded & {PurePosixPath(str(parent).casefold()) for parent in path.parents}
