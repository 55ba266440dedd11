"""Fuzz the readers of bundles: ``python -m tests.fuzz.fuzz_bundle [libFuzzer options] [CORPUS]``, until stopped.

The first byte of an input chooses the profile and where a stream is cut; the rest is the bundle. Each input must
give a result or a `BundleError`, the same from every driver. Without a CORPUS it begins with the real and the malformed
bundles, in a temporary folder. libFuzzer writes a crash to the current folder.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["headgate"]):
    import headgate.bundle.stream  # noqa: F401 - imports the reader too, so that both are instrumented

from tests.malformed import CASES
from tests.malformed.agreement import check_agreement

VECTORS = Path(__file__).parents[1] / "vectors" / "bundle"
LONGEST = 2048


def one_input(content: bytes) -> None:
    """Try one input; any exception is a finding."""
    choice = content[0] if content else 0
    check_agreement(content[1:], "compat" if choice & 1 else "strict", [choice, 5 * choice, 23 * choice])


def begin(folder: Path) -> None:
    """Write the first inputs."""
    bundles = [path.read_bytes() for path in VECTORS.glob("**/*.*wbn")] + [case.content for case in CASES]
    for number, bundle in enumerate(bundles):
        if len(bundle) < LONGEST:
            (folder / f"{number}").write_bytes(bytes([number % 256]) + bundle)


def main(arguments: list[str]) -> None:
    """Run until libFuzzer ends the process."""
    with tempfile.TemporaryDirectory() as corpus:
        if all(argument.startswith("-") for argument in arguments[1:]):
            begin(Path(corpus))
            arguments = [*arguments, f"-max_len={LONGEST}", corpus]
        atheris.Setup(arguments, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
