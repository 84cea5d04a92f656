#!/usr/bin/env bash
# Build the wheel of kp 0.9.0 with the Python given as $1 into the folder $2, with no network
# access but to PyPI: its CMake would fetch fmt, pybind11 and the Vulkan headers from elsewhere.
set -euo pipefail
python=$1
mkdir -p "$2"
out=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
bin=$work/venv/bin
"$bin/pip" install -q "pybind11<3" "cmake<4" wheel setuptools
"$bin/pip" download -q --no-deps --no-binary kp --no-build-isolation -d "$work" kp==0.9.0
tar xzf "$work/kp-0.9.0.tar.gz" -C "$work"
# Its setup.py lacks a comma after one argument, which swallows the next: the interpreter. CMake
# then takes any python on PATH. And it refuses NumPy 2, with which it works when built by
# pybind11 2.12 or later.
cd "$work/kp-0.9.0"
sed -i -e "s/VERSION_CHECK=ON'\$/&,/" -e "s/numpy<2.0.0/numpy/" setup.py
# Newer Vulkan headers (Debian 13) keep the dispatcher in vk::detail and have a type of their own
# for the callback; newer compilers warn about more.
sed -i "1i namespace vk { namespace detail {} using namespace detail; }" \
    src/include/kompute/Manager.hpp
sed -i "s/(PFN_vkDebugReportCallbackEXT)debugMessageCallback/\
reinterpret_cast<decltype(debugCreateInfo.pfnCallback)>(debugMessageCallback)/" src/Manager.cpp
sed -i "s/ -Werror//" CMakeLists.txt

export KOMPUTE_OPT_USE_BUILT_IN_FMT=OFF KOMPUTE_OPT_USE_BUILT_IN_PYBIND11=OFF \
    KOMPUTE_OPT_USE_BUILT_IN_VULKAN_HEADER=OFF KOMPUTE_OPT_INSTALL=OFF \
    KOMPUTE_OPT_DISABLE_VULKAN_VERSION_CHECK=ON KOMPUTE_OPT_LOG_LEVEL=Off
pybind11_DIR=$("$bin/python" -m pybind11 --cmakedir)
# One digit: setup.py splits the number into its characters.
jobs=$(nproc)
export pybind11_DIR KOMPUTE_PYTHON_NUM_PARALLEL_THREADS=$((jobs < 9 ? jobs : 9))
PATH=$bin:$PATH "$bin/pip" wheel -q --no-build-isolation --no-deps -w "$out" .
