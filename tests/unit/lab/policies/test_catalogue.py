import math

import pytest

from headgate.errors import SimulationError
from headgate.lab.policies.catalogue import find_policy

POLICY = """
from headgate.lab.policies import Policy

print("imported")

class Mine(Policy):
    def release(self, *, now):
        return {release}

    def pause(self, failures, *, now):
        return {pause}
"""


def mine(folder, *, release="now", pause="None"):
    (folder / "mine.py").write_text(POLICY.format(release=release, pause=pause))
    policy = find_policy("mine.py:Mine", str(folder))
    return policy(None, None, lambda: 0.5)


@pytest.mark.parametrize("value", ["float('nan')", "None", "'soon'"])
def test_a_release_of_a_users_policy_that_is_not_an_instant_is_an_error(tmp_path, value):
    with pytest.raises(SimulationError, match=r"^Mine\.release returned .*; expected an instant in seconds$"):
        mine(tmp_path, release=value).release(now=5.0)


@pytest.mark.parametrize("value", ["float('nan')", "-1.0", "'soon'"])
def test_a_pause_of_a_users_policy_that_is_not_a_duration_is_an_error(tmp_path, value):
    with pytest.raises(SimulationError, match=r"^Mine\.pause returned .*; expected None or a non-negative number"):
        mine(tmp_path, pause=value).pause(1, now=5.0)


def test_values_of_a_users_policy_that_are_allowed_are_returned(tmp_path):
    policy = mine(tmp_path, release="float('inf')", pause="0")
    assert policy.release(now=5.0) == math.inf
    assert policy.pause(1, now=5.0) == 0
    assert type(policy).__name__ == "Mine"


def test_what_a_users_file_prints_is_not_part_of_the_output(tmp_path, capsys):
    mine(tmp_path)
    assert capsys.readouterr() == ("", "imported\n")
