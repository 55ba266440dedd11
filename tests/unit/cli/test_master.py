from headgate.cli.master import MasterOptions


def test_a_domain_of_a_master_may_have_any_burst_with_another_algorithm(headgate):
    tree, _ = MasterOptions(domains=(("a", ("2000000/d",)),), algorithm="gcra").read()
    assert tree.domain[0].algorithm == "gcra"
    ran = headgate("master", "--domain", "a=2000000/d")
    assert ran.code == 2
    assert "16 MB; use algorithm gcra" in ran.err
