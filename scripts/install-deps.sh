#!/usr/bin/env bash
# Installs the Debian 12 packages that a purpose needs; does nothing (and needs no network) when they are all there.
#   scripts/install-deps.sh build        compile and run
#   scripts/install-deps.sh demo         build, and the text that the demo trains on
#   scripts/install-deps.sh test         build, and what the tests use
#   scripts/install-deps.sh bench        build, and what measures single kernels
#   scripts/install-deps.sh dev          test, and clang, clang-format, clang-tidy, ccache
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libhwy-dev libopenmpi-dev openmpi-bin nlohmann-json3-dev libyaml-cpp-dev
       libxxhash-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev libsimdjson-dev zlib1g-dev libzstd-dev)
demo=(bible-kjv bible-kjv-text)
test=(libgtest-dev iproute2)
bench=(libbenchmark-dev)
dev=(clang-14 clang-format-14 clang-tidy-14 ccache libdnnl-dev)

purpose="${1:-}"
case "$purpose" in
  build) packages=("${build[@]}") ;;
  demo) packages=("${build[@]}" "${demo[@]}") ;;
  test) packages=("${build[@]}" "${test[@]}") ;;
  bench) packages=("${build[@]}" "${bench[@]}") ;;
  dev) packages=("${build[@]}" "${demo[@]}" "${test[@]}" "${bench[@]}" "${dev[@]}") ;;
  *) echo "usage: scripts/install-deps.sh build|demo|test|bench|dev" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  status="$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)"
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "Packages are missing. Install them with:"
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
  exit 1
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends "${missing[@]}"
