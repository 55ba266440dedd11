#!/bin/sh
# Write the lock files anew: the newest versions that pyproject.toml and package.json allow, with the hashes of every
# platform's files and no registry's address, so that any mirror can serve them.
set -eu
cd "$(dirname "$0")/.."

uv=$(command -v uv || echo .venv/bin/uv)
"$uv" --version >/dev/null 2>&1 || { echo "lock: uv is needed; install it, or let make venv bring it." >&2; exit 1; }

compile() {
    "$uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-annotate --no-header --output-file "$@"
}
compile requirements/dev.txt pyproject.toml --extra all --group dev
echo uv | compile requirements/uv.txt -
echo pip-audit | compile requirements/audit.txt -
echo niquests | compile requirements/niquests.txt --constraint requirements/dev.txt -

if command -v npm >/dev/null; then
    rm -f requirements/node/package-lock.json
    npm install --prefix requirements/node --package-lock-only --omit-lockfile-registry-resolved \
        --ignore-scripts --no-audit --no-fund --silent
else
    echo "lock: npm is missing, so requirements/node/package-lock.json stays as it is." >&2
fi

if grep -rn '://' requirements; then
    echo "lock: the lines above hold an address; the lock must not." >&2
    exit 1
fi
