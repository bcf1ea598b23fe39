#!/bin/sh
# Install the servers that tests talk to, as far as this user may here: tests/servers/install.sh [ENVIRONMENT]
# Debian's packages as root on Debian and Ubuntu, those of npm into ENVIRONMENT/node (.venv beside the tests), a line
# for each. What cannot be had costs no other, and no service is started. Python's are in pyproject.toml.
set -u
cd "$(dirname "$0")/../.." || exit 1

DEBIAN="nginx-light squid openssl openssh-server openssh-client ceph-mon ceph-osd radosgw ceph-common
    graphicsmagick imagemagick slurm-wlm munge chromium"
NODE="azurite kubernetes-models @kubernetes-models/argo-workflows"
ENVIRONMENT=${1:-.venv}
POLICY=${POLICY:-/usr/sbin/policy-rc.d} # Debian starts what it installs, unless this program says no
OURS="# left by tests/servers/install.sh if it was killed"

install() { # what, command...
    printf 'run: installing %s ...' "$1" >&2
    shift
    if said=$("$@" 2>&1 </dev/null); then
        echo " done" >&2
    else
        printf ' not to be had: %s\n' "$(echo "$said" | grep -v '^$' | tail -n 1)" >&2
        return 1
    fi
}

has() {
    dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

apt_get() {
    env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -qq --yes -o DPkg::Lock::Timeout=600 -o Acquire::Retries=2 "$@"
}

debian() {
    command -v npm >/dev/null || DEBIAN="$DEBIAN npm"
    missing=
    for package in $DEBIAN; do
        has "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if ! [ -e "$POLICY" ] || grep -qxF "$OURS" "$POLICY"; then
        trap 'rm -f "$POLICY"' EXIT
        trap 'exit 130' INT TERM
        printf '#!/bin/sh\n%s\nexit 101\n' "$OURS" >"$POLICY"
        chmod 755 "$POLICY"
    fi
    install "apt's lists" apt_get -o APT::Update::Error-Mode=any update || return
    for package in $missing; do
        install "$package" apt_get --no-install-recommends install "$package"
    done
}

node() {
    command -v npm >/dev/null || return 0
    for package in $NODE; do
        [ -d "$ENVIRONMENT/node/node_modules/$package" ] && continue
        mkdir -p "$ENVIRONMENT/node"
        install "$package" npm install --no-fund --no-audit --prefix "$ENVIRONMENT/node" "$package"
    done
}

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    exec 9<"$(dirname "$POLICY")" && flock 9 # one of us at a time
    debian
fi
node
