"""Laws of scenario files: whatever a file or a change contains, it is a scenario within its limits, or one error."""

import copy
import math
import tomllib
from contextlib import suppress
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.errors import ConfigurationError
from headgate.lab.scenario import MAX_SEEDS, MAX_TICKS
from headgate.lab.scenario_file import FOLDER, convert_scenario, parse_scenario

FILES = {name: (FOLDER / name).read_text() for name in ("attack.toml", "downtime.toml", "inner/bus.toml")}
DOCUMENTS = {name: tomllib.loads(text) for name, text in FILES.items()}
VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=10),
    st.sampled_from([10**400, math.inf, -math.inf, math.nan, 2**63, -1, 0, "none", "draft", "x:y", "a.py:B", "ticks"]),
    st.lists(st.integers() | st.text(max_size=5), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


def paths(document, path=()):
    """Every place in a document: the keys and indexes that lead to it."""
    members = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in members:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


@given(st.data())
def test_a_file_with_any_value_anywhere_is_a_scenario_or_an_error(data):
    document = copy.deepcopy(data.draw(st.sampled_from(list(DOCUMENTS.values()))))
    *way, last = data.draw(st.sampled_from(list(paths(document))))
    table = document
    for step in way:
        table = table[step]
    table[last] = data.draw(VALUES)
    try:
        scenario = convert_scenario(document, Path("/x.toml"))
    except ConfigurationError:
        return
    assert 1 <= len(scenario.seed_list) <= MAX_SEEDS
    assert scenario.compared
    assert getattr(scenario, "total_ticks", 1) <= 11 * MAX_TICKS


@given(
    name=st.sampled_from(list(FILES)),
    change=st.builds(
        "{}={}".format,
        st.text(max_size=10) | st.sampled_from(["agents.client.count", "origins.site", "load", "expect.load", "laws"]),
        st.text(max_size=10) | st.from_type(float).map(str) | st.sampled_from(['["none"]', "{a = 1}", "1\nticks = 2"]),
    ),
)
@example("inner/bus.toml", "laws={0=0}")
def test_any_change_is_a_scenario_or_an_error(name, change):
    with suppress(ConfigurationError):
        assert parse_scenario(FILES[name], Path("/x.toml"), [change]).name == "x"
