import asyncio

import pytest

from headgate.config import parse
from headgate.errors import ConfigurationError
from headgate.runtime.gate.build import check_composition
from headgate.runtime.gate.bundle_loader import load_bundles
from tests import webbundles


@pytest.fixture
def site(tmp_path):
    return webbundles.write(tmp_path / "site.wbn")


def tree(site, *lines):
    return parse(f'[[bundle]]\nfile = "{site}"\n' + "".join(f"{line}\n" for line in lines))


def test_without_bundles_nothing_is_loaded():
    assert load_bundles(parse("")) is None


def test_bundle_is_published_or_a_lifeboat_or_both(site):
    both = load_bundles(tree(site, 'path = "/site.wbn"', "lifeboat = true"))
    assert list(both.published) == [b"/site.wbn"]
    assert [boat.bundle for boat in both.lifeboats] == list(both.published.values())
    assert not load_bundles(tree(site, 'path = "/site.wbn"')).lifeboats
    assert not load_bundles(tree(site, "lifeboat = true")).published


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], r"bundle\[0\]: it has no effect"),
        (['path = "site.wbn"'], "try '/site.wbn'"),
        (['path = "/a%20b.wbn"'], "try '/a b.wbn'"),
        (['path = "/a/../site.wbn"'], "try '/site.wbn'"),
        (['path = "/site.wbn?x"'], "try '/site.wbn'"),
        (['path = "/site.wbn#x"'], "try '/site.wbn'"),
        (['path = "/a"', 'hosts = ["a"]'], "add lifeboat = true"),
        (["lifeboat = true", 'hosts = ["https://a"]'], r"bundle\[0\].hosts: 'https://a' is not a host"),
        (["lifeboat = true", 'hosts = [""]'], "is not a host"),
        (["lifeboat = true", 'hosts = ["é.example"]'], "is not a host"),
    ],
)
def test_invalid_section_is_refused(site, lines, words):
    with pytest.raises(ConfigurationError, match=words):
        check_composition(tree(site, *lines))


def test_two_bundles_at_one_path_are_refused(site):
    text = f'[[bundle]]\nfile = "{site}"\npath = "/a"\n'
    with pytest.raises(ConfigurationError, match=r"bundle\[1\].path: '/a' is taken"):
        check_composition(parse(text * 2))


def test_file_that_cannot_be_served_is_refused(tmp_path, site):
    missing = tmp_path / "none.wbn"
    with pytest.raises(ConfigurationError, match=r"bundle\[0\].file: .*none.wbn: no such file or directory; name a"):
        check_composition(tree(missing, "lifeboat = true"))
    with pytest.raises(ConfigurationError, match="is a directory; name a readable file"):
        check_composition(tree(tmp_path, "lifeboat = true"))
    missing.write_bytes(b"<!doctype html>")
    with pytest.raises(ConfigurationError, match=r"is not a valid bundle: .* at byte 0 \(3.3 step 2\)$"):
        check_composition(tree(missing, "lifeboat = true"))


def test_error_for_a_file_of_the_published_tools_names_profile_compat(tmp_path):
    site = webbundles.without_manifest(webbundles.write(tmp_path / "site.wbn"))
    with pytest.raises(ConfigurationError, match=r"manifest.*; profile compat accepts it"):
        check_composition(tree(site, "lifeboat = true"))
    check_composition(tree(site, "lifeboat = true", 'profile = "compat"'))


def test_only_changed_files_are_loaded_again(tmp_path, site):
    other = webbundles.write(tmp_path / "other.wbn")
    text = f'[[bundle]]\nfile = "{site}"\nlifeboat = true\n[[bundle]]\nfile = "{other}"\nlifeboat = true\n'
    first = load_bundles(parse(text))
    webbundles.write(other, {"url": "/", "payload": b"two"})
    second = load_bundles(parse(text), first)
    kept, new = (boat.bundle for boat in second.lifeboats)
    assert kept is first.lifeboats[0].bundle
    assert new is not first.lifeboats[1].bundle
    compat = load_bundles(parse(text.replace("lifeboat = true\n[[", 'lifeboat = true\nprofile = "compat"\n[[')), first)
    assert compat.lifeboats[0].bundle is not kept


def test_invalid_replacement_is_logged(site):
    told = []
    shelf = load_bundles(tree(site, "lifeboat = true"), complain=told.append)
    site.unlink()

    async def look():
        shelf.check()
        await next(iter(shelf.bundles)).renew()

    asyncio.run(look())
    assert len(told) == 1
