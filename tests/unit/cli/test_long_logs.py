"""What commands say of rules whose burst is too great for the algorithm `log`."""

import pytest

from headgate.cli.master import MasterOptions

FILE = '[[domain]]\nname = "a"\nrules = ["{rule}"]\nalgorithm = "{algorithm}"\n'


@pytest.mark.parametrize(
    ("rule", "algorithm", "lines"), [("9/s", "log", 0), ("20000/h", "log", 1), ("20000/h", "gcra", 0)]
)
def test_config_check_warns_and_takes_the_file(headgate, tmp_path, rule, algorithm, lines):
    file = tmp_path / "headgate.toml"
    file.write_text(FILE.format(rule=rule, algorithm=algorithm))
    ran = headgate("config", "check", "--config", file)
    assert (ran.code, ran.out) == (0, f"{file}: valid, 1 domain\n".encode())
    assert len(ran.err.splitlines()) == lines
    if lines:
        assert ran.err.startswith(
            "headgate: warning: domain 'a': the algorithm log stores 20000 timestamps of each client"
        )


def test_a_rule_that_is_refused_is_one_sentence(headgate, tmp_path):
    (tmp_path / "log").write_bytes(b"")
    ran = headgate("replay", "--rule", "2000000/d", tmp_path / "log")
    assert ran.code == 2
    assert "16 MB; use algorithm gcra" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_domain_of_a_master_may_have_any_burst_with_another_algorithm(headgate):
    tree, _ = MasterOptions(domains=(("a", ("2000000/d",)),), algorithm="gcra").read()
    assert tree.domain[0].algorithm == "gcra"
    ran = headgate("master", "--domain", "a=2000000/d")
    assert ran.code == 2
    assert "16 MB; use algorithm gcra" in ran.err
