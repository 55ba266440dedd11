"""`headgate router`: a file and the options that override it."""

from headgate.cli.router import RouterOptions

FILE = '[router]\nmaster = "10.0.0.5:10004"\n'


def test_options_override_the_file(tmp_path):
    path = tmp_path / "some.toml"
    path.write_text(FILE)
    tree, name = RouterOptions(str(path), {"router.master": ("10.0.0.6:10004", "10.0.0.7:10004")}).read()
    assert name == str(path)
    assert tree.router.masters == ("10.0.0.6:10004", "10.0.0.7:10004")
    tree, _ = RouterOptions(str(path)).read()
    assert tree.router.masters == ("10.0.0.5:10004",)


def test_wrong_values_name_the_flag(headgate):
    ran = headgate("router", "--master", "10.0.0.5:65535")
    assert (ran.code, ran.out) == (2, b"")
    assert "control uses the next port" in ran.err
    assert headgate("router").err.startswith("headgate: no master: add --master 10.0.0.5:10004")
