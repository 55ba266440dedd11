"""Make `.venv`: the locked packages, each checked against its hash, and headgate itself, editable.

Runs before anything is installed, so it knows only the standard library, and old Pythons must still be able to read
it in order to be told that they are too old. uv does the work where it is found or can be installed; pip does
otherwise, or when HEADGATE_NO_UV=1.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["main"]

OLDEST = (3, 11)
NEWEST = (3, 14)
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements" / "dev.txt"
UV_LOCK = ROOT / "requirements" / "uv.txt"
IS_SUPPORTED = f"import sys; sys.exit(not {OLDEST} <= sys.version_info[:2] <= {NEWEST})"
CLEAR = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV"}


def main() -> int:
    """Bring `.venv` up to date with the lock; 0 when it is, 1 with one sentence on stderr when it cannot be."""
    with LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes at once would write into one another's environment
        try:
            uv = working_uv()
            if not succeeds(PYTHON, "-c", IS_SUPPORTED):
                create(uv)
            install(uv or bootstrapped_uv())
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"venv: {sentence(error)}; what it said stands above.", file=sys.stderr)
            return 1
    (VENV / ".stamp").touch()
    return 0


def create(uv):
    """Create an empty `.venv` with the first supported Python found."""
    python = supported_python()
    if uv:
        wanted = python or f">={OLDEST[0]}.{OLDEST[1]}"
        run(uv, "venv", "--quiet", "--clear", "--no-project", "--python", wanted, VENV)
    elif python is None:
        raise SystemExit(f"venv: Python {OLDEST[0]}.{OLDEST[1]} or newer is needed; install it, or uv.")
    elif not succeeds(python, "-c", "import venv, ensurepip"):
        raise SystemExit(f"venv: {python} cannot make virtual environments; install the package python3-venv, or uv.")
    else:
        run(python, "-m", "venv", "--clear", VENV)


def install(uv):
    """Install what the lock names, then headgate itself with the build backend the lock brought."""
    print(f"venv: installing requirements/dev.txt with {'uv' if uv else 'pip'}", flush=True)
    if uv:
        pip = [uv, "pip", "install", "--quiet", "--python", PYTHON]
        itself = ["--offline"]
    else:
        pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        itself = ["--no-index"]
    run(*pip, "--require-hashes", "--requirement", LOCK)
    run(*pip, *itself, "--no-deps", "--no-build-isolation", "--editable", ROOT)


def supported_python():
    """Path of a supported Python: the one running this, else the newest on PATH; None when there is none."""
    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    for python in [sys.executable, *map(shutil.which, names)]:
        if python and succeeds(python, "-c", IS_SUPPORTED):
            return python
    return None


def working_uv():
    """Path of the uv on PATH, or of the one put into `.venv` earlier; None without, or when it is not wanted."""
    if os.environ.get("HEADGATE_NO_UV"):
        return None
    for uv in [shutil.which("uv"), VENV / "bin" / "uv"]:
        if uv and succeeds(uv, "--version"):
            return uv
    return None


def bootstrapped_uv():
    """Install uv into `.venv` from the package index; None when that is not possible or not wanted."""
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if os.environ.get("HEADGATE_NO_UV"):
        return None
    if not succeeds(*pip, "--only-binary", ":all:", "--require-hashes", "--requirement", UV_LOCK):
        return None
    return VENV / "bin" / "uv"


def run(*command):
    """Run a command in the project's folder; CalledProcessError when it fails."""
    subprocess.run([str(part) for part in command], check=True, cwd=str(ROOT), env=environment())


def succeeds(*command):
    """Whether a command exists and exits with 0; its output is of no interest."""
    words = [str(part) for part in command]
    try:
        done = subprocess.run(
            words, check=False, cwd=str(ROOT), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except OSError:
        return False
    return done.returncode == 0


def environment():
    """Return the caller's environment without what would send the packages elsewhere."""
    return {name: value for name, value in os.environ.items() if name not in CLEAR}


def sentence(error):
    """Return what failed, in words."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"`{' '.join(error.cmd)}` failed"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
