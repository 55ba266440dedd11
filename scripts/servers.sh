#!/bin/sh
# Install the real servers and programs that tests and benchmarks run against: from Debian's packages when root, and
# the Node.js peers' packages into .servers/node. Starts nothing, and leaves nothing running.
set -eu
cd "$(dirname "$0")/.."

# Each program, and Debian's package of it where that has another name.
missing=
for program in nginx redis-server wrk curl wget node:nodejs npm openssl chromium squid haproxy \
    tinyproxy:tinyproxy-bin nghttpx:nghttp2-proxy nghttp:nghttp2-client h2load:nghttp2-client \
    ip:iproute2 unshare:util-linux promtool:prometheus systemd-analyze:systemd; do
    if ! PATH="$PATH:/usr/sbin" command -v "${program%%:*}" >/dev/null; then
        missing="$missing ${program##*:}"
    fi
done

# A module of nginx is a file, not a program.
[ -e /usr/lib/nginx/modules/ngx_http_lua_module.so ] || missing="$missing libnginx-mod-http-lua"
[ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || missing="$missing libnginx-mod-stream"

install_packages() {
    # Debian starts a service when it installs one, unless this file exits with 101.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    # Debian also starts it when the machine starts; this is disabled unless the service was installed before.
    unwanted=
    for service in nginx redis-server squid haproxy nghttpx prometheus; do
        [ -e "/etc/init.d/$service" ] || unwanted="$unwanted $service"
    done
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install --yes --no-install-recommends "$@"
    for service in $unwanted; do
        [ ! -e "/etc/init.d/$service" ] || update-rc.d "$service" disable
    done
}

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "servers: this is no Debian, so install these by hand:$missing." >&2
        exit 1
    elif [ "$(id -u)" -ne 0 ]; then
        echo "servers: run as root to install these Debian packages:$missing." >&2
        exit 1
    fi
    install_packages $missing
fi

lock=requirements/node/package-lock.json
node=.servers/node
if ! cmp -s "$lock" "$node/installed"; then
    mkdir -p "$node"
    cp requirements/node/package.json "$lock" "$node/"
    # zeromq contains prebuilt binaries; its install script, which would look for others, is not run.
    npm ci --prefix "$node" --ignore-scripts --no-audit --no-fund --silent
    cp "$lock" "$node/installed"
fi
echo "servers: all programs, and Node.js with its packages, are there."
