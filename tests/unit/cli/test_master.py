from headgate.cli.master import MasterOptions


def test_the_burst_of_a_domain_is_limited_only_with_the_algorithm_log(headgate):
    tree, _ = MasterOptions(domains=(("a", ("2000000/d",)),), algorithm="gcra").read()
    assert tree.domain[0].algorithm == "gcra"
    ran = headgate("master", "--domain", "a=2000000/d")
    assert ran.code == 2
    assert "16 MB; use algorithm gcra" in ran.err
