#!/bin/sh
# Fetch the JavaScript library of the dashboard again from npm, and check it: the package by the digest of its version,
# each file by its own. Another version: change VERSION, then write SHA256SUMS again.
set -eu
cd "$(dirname "$0")/../src/headgate/observe/dashboard/vendor"
read -r package digest <VERSION
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
npm pack "$package" --pack-destination "$folder" --silent >/dev/null
found="sha512-$(openssl dgst -sha512 -binary "$folder"/*.tgz | base64 --wrap=0)"
if [ "$found" != "$digest" ]; then
    echo "vendor: $package has the digest $found; expected $digest" >&2
    exit 1
fi
tar -xzf "$folder"/*.tgz -C "$folder"
cp "$folder/package/dist/uPlot.iife.min.js" "$folder/package/dist/uPlot.min.css" .
cp "$folder/package/LICENSE" LICENSE-uPlot
sha256sum --check --quiet SHA256SUMS
echo "vendor: $package is there"
