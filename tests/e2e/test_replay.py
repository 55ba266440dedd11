"""`headgate replay` as a process: the vectors' answers, over a pipe, from a file, packed."""

import gzip
import json
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "limit" / "algorithms.json").read_text())["replay"]
PROGRAM = [sys.executable, "-m", "headgate", "replay", "--json"]


def run(case, *arguments, text):
    rule = ["--rule", case["rule"], "--algorithm", case["algorithm"], "--max-delay", str(case["max_delay"])]
    done = subprocess.run([*PROGRAM, *rule, *arguments], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def agrees(report, expected):
    counts = {name: value for name, value in expected.items() if name != "by_identifier"}
    assert {name: report[name] for name in counts} == counts
    assert report["requests"] == report["accepted"] + report["delayed"] + report["rejected"]
    held = {row["identifier"]: {"delayed": row["delayed"], "rejected": row["rejected"]} for row in report["top"]}
    known = expected["by_identifier"]
    assert all(held.get(name, {"delayed": 0, "rejected": 0}) == counts for name, counts in known.items())


def test_a_log_from_standard_input():
    case = VECTORS[-1]
    lines = [json.dumps({"time": moment, "identifier": who}) for moment, who in case["events"]]
    agrees(run(case, "-", text="\n".join(lines).encode()), case["expect"])


def test_a_gzip_file_with_iso_times_is_the_same_log(tmp_path):
    case = VECTORS[0]
    lines = [
        json.dumps({"time": datetime.fromtimestamp(moment, UTC).isoformat(), "identifier": who})
        for moment, who in case["events"]
    ]
    packed = tmp_path / "access.log"  # told by its first bytes, not by its name
    packed.write_bytes(gzip.compress("\n".join(lines).encode()))
    agrees(run(case, str(packed), text=b""), case["expect"])


def test_a_combined_log_out_of_order_is_sorted():
    case = {"rule": "1/s burst 1", "algorithm": "log", "max_delay": 0}
    line = '10.0.0.1 - - [14/Nov/2023:22:13:{:02} +0000] "GET / HTTP/1.1" 200 1 "-" "curl"\n'
    text = "".join(line.format(second) for second in (23, 20, 21, 22, 22)).encode()
    report = run(case, "--format", "combined", "-", text=text)
    assert (report["accepted"], report["rejected"]) == (4, 1)
    assert report["top"] == [{"identifier": "10.0.0.1", "delayed": 0, "rejected": 1}]


def test_lines_before_damage_in_compressed_data_are_counted(tmp_path):
    packed = tmp_path / "access.log.gz"
    chance = random.Random(7)
    entries = [b'{"time":%d,"identifier":"%d"}\n' % (number, chance.getrandbits(64)) for number in range(2_000)]
    packed.write_bytes(gzip.compress(b"".join(entries))[:-10_000])
    done = subprocess.run([*PROGRAM, "--rule", "1/s", "--json", str(packed)], capture_output=True, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert 500 < report["requests"] < 2_000
    assert report["malformed"] in {1, 2}  # the rest, and perhaps the line the cut went through
    assert done.stderr.count(b"\n") == 1
    assert b"ends early" in done.stderr
