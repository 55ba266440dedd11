"""`headgate simulate` on small scenarios: what it prints, its exit codes, and its errors."""

import sys

import pytest

from headgate.lab.scenario_file import names

SCENARIO = """\
description = "Two agents request a server."
world = "ticks"
seeds = 2
policies = ["none", "draft"]
ticks = 20

[[agents]]
name = "client"
kind = "requester"
count = 2
interval = 2.0

[[origins]]
name = "site"
kind = "cooling"
capacity = 1.0
"""
WITHIN = '[[expect]]\nsignal = "load"\nstatistic = "max"\nat_most = 3.0\n'
OUTSIDE = '[[expect]]\nsignal = "load"\nstatistic = "max"\nat_most = 0.0\n'


@pytest.fixture
def scenario(tmp_path):
    def write(text: str = SCENARIO, name: str = "mine.toml") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_json_has_the_mean_of_each_metric_by_policy(headgate, scenario):
    ran = headgate("simulate", scenario(), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["scenario"], ran.json["seeds"]) == ("mine", 2)
    assert list(ran.json["policies"]) == ["none", "draft"]
    assert ran.json["policies"]["none"].keys() == ran.json["policies"]["draft"].keys()


def test_the_number_of_processes_does_not_change_the_output(headgate, scenario):
    outputs = {headgate("simulate", scenario(), "--json", "--seeds", 5, "--processes", n).out for n in (1, 2, 3)}
    assert len(outputs) == 1


def test_more_agents_than_the_tick_world_allows_are_simulated_in_arrays(headgate, scenario):
    changes = ("--agents", 100_001, "--set", "agents.client.interval=0.5")
    ran = headgate("simulate", scenario(), "--json", "--seeds", 1, "--processes", 1, *changes)
    assert ran.err == "headgate: mine: 100,001 agents were simulated in compiled arrays\n"
    assert ran.json["policies"]["none"]["max_requests"] > 30_000
    assert ran.json["policies"]["draft"]["local_refusals"] > 100_000


@pytest.mark.parametrize("library", ["numpy", "numba"])
def test_more_agents_without_the_extra_are_an_error_that_names_it(headgate, scenario, monkeypatch, library):
    for name in [name for name in sys.modules if name.startswith("headgate.lab.kernel.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    ran = headgate("simulate", scenario(), "--agents", 100_001)
    assert ran.code == 2
    assert ran.err.startswith("headgate: a simulation of more than 100,000 agents needs the extra 'lab'; ")


def test_seeds_replace_those_of_the_file(headgate, scenario):
    assert headgate("simulate", scenario(), "--json", "--seeds", 3).json["seeds"] == 3


def test_the_report_has_a_row_for_each_policy(headgate, scenario):
    ran = headgate("simulate", scenario(), "--processes", 1)
    assert ran.code == 0
    assert ran.lines[0] == "mine: Two agents request a server."
    assert ran.lines[1] == "The mean of 2 seeds for each policy:"
    header, none, draft = ran.lines[3:6]
    assert "client_success" in header.split()
    assert (none.split()[0], draft.split()[0]) == ("none", "draft")
    assert len(none.split()) == len(header.split()) + 1


@pytest.mark.parametrize(
    ("expect", "control", "code", "verdict"),
    [(WITHIN, "", 0, "ok"), (OUTSIDE, "", 1, "OUTSIDE"), (WITHIN, 'control = "none"', 1, "do not tell a good policy")],
)
def test_the_exit_code_says_whether_values_are_in_their_ranges(headgate, scenario, expect, control, code, verdict):
    file = scenario(f"{control}\n{SCENARIO}{expect}")
    ran = headgate("simulate", file, "--processes", 1)
    assert ran.code == code
    assert verdict in ran.out.decode()
    as_json = headgate("simulate", file, "--processes", 1, "--json")
    assert as_json.code == code
    assert as_json.json["policies"].keys() == {"none", "draft"}
    assert bool(as_json.err) == bool(code)


def test_a_control_outside_of_its_range_is_as_expected(headgate, scenario):
    text = SCENARIO.replace('["none", "draft"]', '["none"]').replace("seeds", 'control = "draft"\nseeds')
    ran = headgate("simulate", scenario(text + OUTSIDE + 'policies = ["draft"]\n'), "--processes", 1)
    assert ran.code == 0
    assert "draft  OUTSIDE  max of load is " in ran.out.decode()


def test_a_folder_is_a_suite(headgate, scenario, tmp_path):
    scenario(SCENARIO + WITHIN, "mine/first.toml")
    scenario(SCENARIO + OUTSIDE, "mine/second.toml")
    ran = headgate("simulate", f"{tmp_path}/mine", "--json", "--processes", 1)
    assert ran.code == 1
    assert ran.json["scenario"] == "mine"
    cases = [(case["name"], case["law"], case["control"], case["within"]) for case in ran.json["cases"]]
    assert cases == [
        ("first", "none", False, True),
        ("first", "draft", False, True),
        ("second", "none", False, False),
        ("second", "draft", False, False),
    ]
    one = headgate("simulate", f"{tmp_path}/mine", "--case", "first", "--processes", 1)
    assert one.code == 0
    assert one.lines[0] == "first: Two agents request a server."
    whole = headgate("simulate", f"{tmp_path}/mine", "--processes", 1)
    assert whole.lines[:2] == [
        "ok      first   Two agents request a server.",
        "FAILED  second  Two agents request a server.",
    ]
    assert whole.lines[2].startswith("        none   OUTSIDE  max of load is ")
    assert whole.lines[-1] == "1 of 2 scenarios as expected: each law in its ranges, its control outside."


def test_a_policy_of_your_own_stands_in_a_file_beside_the_scenario(headgate, scenario, tmp_path):
    policy = "from headgate.lab.policies import Policy\nclass Mine(Policy):\n    pass\n"
    (tmp_path / "own.py").write_text(policy)
    text = SCENARIO.replace('"draft"', '"own.py:Mine"')
    for processes in (1, 2):
        policies = headgate("simulate", scenario(text), "--json", "--processes", processes).json["policies"]
        assert policies["own.py:Mine"] == policies["none"]


def test_an_error_in_a_policy_names_policy_seed_and_line(headgate, scenario, tmp_path):
    policy = (
        "from headgate.lab.policies import Policy\nclass Mine(Policy):\n    def release(self, *, now):\n        1 / 0\n"
    )
    (tmp_path / "own.py").write_text(policy)
    ran = headgate("simulate", scenario(SCENARIO.replace('"draft"', '"own.py:Mine"')), "--processes", 2)
    assert ran.code == 1
    assert ran.err == (
        "headgate: policy 'own.py:Mine', seed 0: ZeroDivisionError: division by zero"
        f" ({tmp_path}/own.py, line 4, in release)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        ((), 2, "missing argument 'NAME|FILE'"),
        (("atack",), 2, "no scenario 'atack'; did you mean 'attack'?"),
        (("./missing.toml",), 2, "missing.toml: No such file or directory"),
        (("attack", "--seeds", "0"), 2, "must be a whole number from 1 to 100,000, got '0'"),
        (("attack", "--seeds", "nan"), 2, "must be a whole number from 1 to 100,000, got 'nan'"),
        (("attack", "--agents", "1e9"), 2, "must be a whole number from 1 to 2,000,000, got '1e9'"),
        (("attack", "--processes", "1000"), 2, "must be a whole number from 1 to 64, got '1000'"),
        (("attack", "--set", "load"), 2, "--set 'load': expected KEY=VALUE"),
        (("attack", "--set", "laod=2"), 2, "laod: unknown key; did you mean 'load'?"),
        (("attack", "--set", "ticks=inf"), 2, "ticks: expected a whole number, got"),
        (("attack", "--set", "agents.client.interval=nan"), 2, "agents[1].interval: expected a number"),
        (("attack", "--set", "agents.clients.interval=1"), 2, "agents has no table named 'clients'; its names are"),
        (("tournament", "--agents", 100_001), 2, "knows the policies none, draft, chromium, not 'full_jitter'"),
        (("attack", "--case", "one"), 2, "--case: this is one scenario, not a suite"),
        (("inner", "--case", "nix"), 2, "inner: no case 'nix'; the cases are"),
        (("inner", "--plot", "a.svg"), 2, "--plot: a suite has no plot"),
        (("attack", "--plot", "/nix/a.svg"), 2, "/nix/a.svg: no folder '/nix'; name a file that can be written"),
        (("attack", "--plot", "a.gif"), 2, "a.gif: unknown format of a plot, .gif"),
    ],
)
def test_invalid_use_is_one_sentence(headgate, arguments, code, reason):
    ran = headgate("simulate", *arguments)
    assert ran.code == code
    assert reason in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == b""


def test_help_lists_the_scenarios_of_the_package(headgate):
    ran = headgate("simulate", "--help")
    listed = ran.out.decode().partition("Scenarios and suites:")[2]
    assert [line.split()[0] for line in listed.splitlines() if line[:2] == "  " and line[2:3].strip()]
    assert all(f"  {name} " in listed for name in names())


def test_a_plot_is_written_without_changing_the_output(headgate, scenario, tmp_path):
    file = scenario()
    plain = headgate("simulate", file, "--json", "--processes", 1)
    plotted = headgate("simulate", file, "--json", "--processes", 2, "--plot", tmp_path / "a.svg")
    assert plotted.out == plain.out
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


def test_a_plot_without_its_extra_is_an_error_before_the_simulation(headgate, scenario, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = headgate("simulate", scenario(), "--plot", "a.svg")
    assert ran.code == 2
    assert "needs the extra 'lab'" in ran.err


def test_json_of_a_scenario_is_one_line(headgate, scenario):
    ran = headgate("simulate", scenario(), "--json", "--processes", 1)
    assert ran.out.count(b"\n") == 1
    assert isinstance(ran.json, dict)
