from hypothesis import given
from hypothesis import strategies as st

from headgate.advice import Entry
from headgate.config import Configuration, parse, show
from headgate.config.tree import BundleSection, Bus, DomainSection, Gate, Proxy, Timeouts

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
SECONDS = st.floats(min_value=0.001, max_value=86_400)
DOMAIN = st.builds(
    DomainSection,
    name=NAME,
    rules=st.lists(st.sampled_from(["10/s burst 20", "1/h"]), max_size=3).map(tuple),
    header=TEXT,
    value=TEXT,
    exempt=st.lists(TEXT.filter(lambda text: "/" not in text), max_size=2).map(tuple),
    exponential_throttling=st.booleans(),
)
TREE = st.builds(
    Configuration,
    gate=st.builds(Gate, max_delay=SECONDS, origin=TEXT, timeouts=st.builds(Timeouts, idle=SECONDS)),
    domain=st.lists(DOMAIN, max_size=3, unique_by=lambda section: section.name).map(tuple),
    advice=st.lists(st.builds(Entry, user_agent=NAME.filter(str.strip), disallow=st.booleans()), max_size=2).map(tuple),
    master=st.just(Bus()),
    bundle=st.lists(
        st.builds(
            BundleSection,
            file=TEXT,
            path=TEXT,
            lifeboat=st.booleans(),
            hosts=st.lists(TEXT, max_size=2).map(tuple),
            profile=st.sampled_from(["strict", "compat"]),
        ),
        max_size=2,
    ).map(tuple),
    proxy=st.builds(
        Proxy,
        brand=TEXT,
        self_signed=st.booleans(),
        alpn=st.sampled_from([("h2",), ("http/1.1", "h2")]),
        allow_ports=st.lists(st.integers(1, 65_535), max_size=2).map(tuple),
        resolve=st.lists(TEXT, max_size=2).map(tuple),
        idle=SECONDS,
    ),
)


@given(TREE)
def test_written_tree_parses_to_the_same_tree(tree):
    assert parse(show(tree)) == tree


def test_each_key_follows_its_documentation():
    text = show(Configuration())
    assert '# Address that clients connect to; port 0 takes a free port.\nlisten = "127.0.0.1:8080"\n' in text
    assert "[gate.timeouts]" in text
