import pytest

from headgate.cli.master import MasterOptions


def test_the_burst_of_a_domain_is_limited_only_with_the_algorithm_log(headgate):
    tree, _ = MasterOptions(flags={"domain.algorithm": "gcra"}, domains=(("a", ("2000000/d",)),)).read()
    assert tree.domain[0].algorithm == "gcra"
    ran = headgate("master", "--algorithm", "log", "--domain", "a=2000000/d")
    assert ran.code == 2
    assert "16 MB; use algorithm gcra" in ran.err


@pytest.mark.parametrize(
    ("domains", "sentence"),
    [(["=1/s"], "invalid domain name ''"), (["a=1/s", "a=2/s"], "'a' is given twice"), ([], "no domain: add --domain")],
)
def test_wrong_domains_are_one_sentence(headgate, domains, sentence):
    ran = headgate("master", *(word for domain in domains for word in ("--domain", domain)))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert sentence in ran.err
