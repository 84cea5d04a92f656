#!/usr/bin/env bash
# Look for the system packages that building and running need, and for a Python from 3.11 on.
# What is missing is installed on Debian 12 and 13 (as root or through sudo); anywhere else it is
# named, with the command that installs it, and the exit code is 1. Prints the Python's path.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# capability | apt | dnf | pacman
PACKAGES="
compiler   | build-essential         | gcc-c++                       | base-devel
loader     | libvulkan1              | vulkan-loader                 | vulkan-icd-loader
headers    | libvulkan-dev           | vulkan-headers vulkan-loader-devel | vulkan-headers
fmt        | libfmt-dev              | fmt-devel                     | fmt
driver     | mesa-vulkan-drivers     | mesa-vulkan-drivers           | vulkan-swrast
validation | vulkan-validationlayers | vulkan-validation-layers      | vulkan-validation-layers
python     | python3 python3-venv python3-dev | python3 python3-devel | python
venv       | python3-venv            | python3                       | python
pyheaders  | python3-dev             | python3-devel                 | python
"

# The first Python from 3.11 to 3.13 that starts (a pyenv shim may not), else any later one.
find_python() {
    local name range
    for range in "(3, 11) <= v <= (3, 13)" "v >= (3, 11)"; do
        for name in "$@" python3 python3.11 python3.12 python3.13 /usr/bin/python3; do
            if "$name" -c "import sys; v = sys.version_info[:2]; sys.exit(not ($range))" \
                2>/dev/null; then
                "$name" -c "import sys; print(sys.executable)"
                return
            fi
        done
    done
    return 1
}

# True if a file of one of these names is below one of Vulkan's manifest folders.
manifest() {
    local root
    for root in /usr/share /usr/local/share /etc; do
        compgen -G "$root/vulkan/$1" >/dev/null && return
    done
    return 1
}

header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }

present() {
    case $1 in
        compiler) command -v c++ >/dev/null && command -v cc >/dev/null ;;
        loader) PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep 'libvulkan\.so\.1' >/dev/null ;;
        headers) header vulkan/vulkan.h && header vulkan/vk_layer.h ;;
        fmt) header fmt/core.h ;;
        driver) manifest 'icd.d/*lvp*.json' ;;
        validation) manifest 'explicit_layer.d/VkLayer_khronos_validation.json' ;;
        python) PY=$(find_python "${PYTHON:-}") ;;
        venv) [ -z "$PY" ] || "$PY" -c "import ensurepip, venv" 2>/dev/null ;;
        pyheaders) [ -z "$PY" ] || [ -e "$("$PY" -c \
            "import sysconfig; print(sysconfig.get_path('include'))")/Python.h" ] ;;
    esac
}

# Sets PY, and MISSING to the capabilities that are not there.
look() {
    local capability
    PY="" MISSING=()
    while IFS=' |' read -r capability _; do
        if [ -n "$capability" ] && ! present "$capability"; then MISSING+=("$capability"); fi
    done <<<"$PACKAGES"
}

# The packages of the missing capabilities: column 2 apt, 3 dnf, 4 pacman.
packages() {
    local capability
    for capability in "${MISSING[@]}"; do
        awk -F'|' -v c="$capability" -v n="$1" '{gsub(/^ +| +$/, "", $1)} $1 == c {print $n}' \
            <<<"$PACKAGES"
    done | tr -s ' \n' ' ' | sed 's/^ //; s/ $//'
}

# How to become root: as it is, or by sudo where it works (it may ask on a terminal), else fail.
become_root() {
    if [ "$(id -u)" = 0 ]; then
        echo env
    elif command -v sudo >/dev/null && { [ -t 2 ] || sudo -n true 2>/dev/null; }; then
        echo sudo env
    else
        return 1
    fi
}

install_debian() {
    local root install log=.cache/apt.log
    root=$(become_root) || return 1
    echo "setup: installing Debian packages: $1" >&2
    install="$root DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300"
    mkdir -p .cache
    # The lists of a new machine are empty or old: fetch them only if it does not go without.
    # shellcheck disable=SC2086
    if ! { $install install --no-install-recommends $1 ||
        { $install update && $install install --no-install-recommends $1; }; } >$log 2>&1; then
        tail -n 30 $log >&2
        return 1
    fi
}

advise() {
    local id=$1 command
    case $id in
        *fedora* | *rhel* | *centos*) command="dnf install $(packages 3)" ;;
        *arch*) command="pacman -S --needed $(packages 4)" ;;
        *debian* | *ubuntu*) command="apt-get install $(packages 2)" ;;
        *) command="the packages that Debian calls: $(packages 2)" ;;
    esac
    echo "missing: ${MISSING[*]}" >&2
    echo "install as root, then run make again:" >&2
    echo "    $command" >&2
}

look
if [ ${#MISSING[@]} -gt 0 ]; then
    ID="" VERSION_ID="" ID_LIKE=""
    # shellcheck disable=SC1091
    if [ -r /etc/os-release ]; then . /etc/os-release; fi
    case $ID:$VERSION_ID in
        debian:12 | debian:13) if install_debian "$(packages 2)"; then look; fi ;;
    esac
    # The validation layer is only for tests, which say that they skip it.
    if [ ${#MISSING[@]} -gt 0 ] && [ "${MISSING[*]}" != validation ]; then
        advise "$ID $ID_LIKE"
        exit 1
    fi
fi
echo "$PY"
