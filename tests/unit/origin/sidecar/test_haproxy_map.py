"""The entries of HAProxy's map, and the commands that change it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import ConfigurationError, WireError
from headgate.origin.sidecar.haproxy_map import (
    MAX_COMMAND_SIZE,
    MapCommands,
    MapEntries,
    MapState,
    check_done,
    check_map_name,
    decode_key,
    encode_key,
)

COMMANDS = MapCommands("/etc/haproxy/held.map")
HOLDS = st.dictionaries(st.binary(min_size=1, max_size=255), st.integers(0, 10**13), max_size=50)


@given(st.binary(max_size=255))
def test_a_key_has_no_character_that_the_runtime_socket_interprets(identifier):
    key = encode_key(identifier)
    assert re.fullmatch(r"[A-Za-z0-9._~%-]*", key)
    assert decode_key(key.encode()) == identifier


def test_addresses_are_readable_in_the_map():
    assert encode_key(b"192.0.2.7") == "192.0.2.7"
    assert encode_key(b"2001:db8::/64") == "2001%3Adb8%3A%3A%2F64"


@given(HOLDS, st.lists(st.tuples(st.integers(0, 49), st.integers(0, 1_000)), max_size=50), st.integers(0, 2_000))
def test_an_entry_is_removed_when_its_last_end_has_come(first, later, now):
    entries = MapEntries({name: end % 1_000 for name, end in first.items()})
    names = list(first) or [b"a"]
    for index, more in later:
        name = names[index % len(names)]
        entries.put(name, entries.ends.get(name, 0) + more)
    expected = dict(entries.ends)
    ended = []
    while removed := entries.remove_ended(now, 7):
        assert len(removed) <= 7
        ended += removed
    assert sorted(ended) == sorted(name for name, end in expected.items() if end <= now)
    assert entries.ends == {name: end for name, end in expected.items() if end > now}


@given(HOLDS)
def test_commands_of_limited_size_have_each_entry_once(holds):
    added = list(COMMANDS.add(holds.items(), 3))
    changed = list(COMMANDS.change(holds.items(), holds))
    assert all(len(command) <= MAX_COMMAND_SIZE + 100 for command in added + changed)
    assert all(command.startswith("add map @3 /etc/haproxy/held.map <<\n") for command in added)
    lines = [line for command in added for line in command.removesuffix("\n\n").split("\n")[1:]]
    assert sorted(lines) == sorted(f"{encode_key(name)} {min(end, 4 * 10**12)}" for name, end in holds.items())
    words = [word.split() for command in changed for word in command.removesuffix("\n").split(";")]
    assert sorted(word[3] for word in words if word[0] == "set") == sorted(map(encode_key, holds))
    assert sorted(word[3] for word in words if word[0] == "del") == sorted(map(encode_key, holds))


def test_many_entries_are_split_into_commands():
    commands = list(COMMANDS.add((b"%d" % number, 1) for number in range(5_000)))
    assert len(commands) > 3
    assert commands[0].startswith("add map /etc/haproxy/held.map <<\n0 1\n1 1\n")


LIST = """\
# id (file) description
0 (/etc/haproxy/held.map.old) pattern loaded from file 'x' used by map. curr_ver=9 next_ver=9 entry_cnt=9
1 (/etc/haproxy/held.map) pattern loaded from file 'x' used by map. curr_ver=2 next_ver=3 entry_cnt=17

"""


def test_the_state_of_the_map_is_read_from_the_list_of_all():
    assert COMMANDS.read_state(LIST) == MapState(2, 17)
    assert MapCommands("/etc/haproxy/held.map.old").read_state(LIST) == MapState(9, 9)
    with pytest.raises(WireError, match="does not have the map '/etc/haproxyxheld'"):
        MapCommands("/etc/haproxyxheld").read_state(LIST)


@given(HOLDS)
def test_entries_are_read_from_the_answer_of_haproxy(holds):
    lines = [f"0x55d0a{number:x} {encode_key(name)} {end}" for number, (name, end) in enumerate(holds.items())]
    answer = "\n".join(["0x1 incomplete", "Unknown map identifier.", *lines]) + "\n\n"
    assert dict(COMMANDS.read_entries(answer)) == holds


def test_answers_of_haproxy_are_checked():
    assert COMMANDS.read_version("New version created: 12\n\n") == 12
    check_done("\n\n\n")
    with pytest.raises(WireError, match="does not have the map"):
        COMMANDS.read_version("Unknown map identifier. Please use #<id> or <file>.\n")
    with pytest.raises(WireError, match="Permission denied"):
        COMMANDS.read_version("Permission denied\n")
    with pytest.raises(WireError, match=r"did not change the map: 'entry not found\.'"):
        check_done("\nentry not found.\n\n")


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a\nb", "#1", "a,b", "a'b", "a\\b", "ä"])
def test_a_name_that_is_not_a_plain_path_is_refused(name):
    with pytest.raises(ConfigurationError, match="invalid map"):
        check_map_name(name)
