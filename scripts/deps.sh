#!/usr/bin/env bash
# Installs the needs of build, tests and demo: Debian packages (as root), and, as the caller, ONNX
# Runtime, an old kubectl and a containerd below .deps/ of this checkout. Idempotent; quick when
# nothing is missing. `--check` only reports missing parts (exit 1).
#
# `bench` also installs nginx, the reference of `make bench`; without nginx those figures are left
# out. Only `make images` needs buildah. The script does not install buildah, because it brings a
# quarter of a container engine: apt-get install --no-install-recommends buildah.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache mold pkg-config make git ca-certificates curl
  libboost1.81-dev libboost-json1.81-dev libssl-dev libnghttp2-dev libsimdjson-dev libyaml-cpp-dev
  libsqlite3-dev libexpat1-dev libxxhash-dev libarchive-dev libzstd-dev zlib1g-dev libre2-dev libspng-dev libturbojpeg0-dev libcli11-dev libspdlog-dev libfmt-dev
  libgtest-dev libgmock-dev libbenchmark-dev clang-14 libclang-rt-14-dev clang-format-14 python3 npm
  iproute2 nftables openssl zstd
)

if [ "${1:-}" = bench ]; then packages+=(nginx-light); fi

missing() {
  local name
  for name in "${packages[@]}"; do
    # npm may belong to a Node.js outside of any package.
    [ "$name" = npm ] && command -v npm >/dev/null && continue
    dpkg-query -W -f '${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || echo "$name"
  done
}

kubectl_wanted() { ! [ -x .deps/kubectl/usr/bin/kubectl ]; }
containerd_wanted() { ! [ -d .deps/containerd ]; }
onnxruntime_wanted() { ! sh scripts/onnxruntime.sh --check; }

mapfile -t lacking < <(missing)
if [ "${1:-}" = --check ]; then
  [ ${#lacking[@]} -eq 0 ] || { echo "missing packages: ${lacking[*]}"; exit 1; }
  if kubectl_wanted; then echo "missing: Debian's kubectl in .deps"; exit 1; fi
  if containerd_wanted; then echo "missing: containerd in .deps"; exit 1; fi
  if onnxruntime_wanted; then echo "missing: ONNX Runtime in .deps"; exit 1; fi
  exit 0
fi

if [ ${#lacking[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "These Debian packages are missing and need root to install:" >&2
    echo "  apt-get install ${lacking[*]}" >&2
    echo "Run 'make deps' once as root, then go on as an ordinary user." >&2
    exit 1
  fi
  echo "installing: ${lacking[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${lacking[@]}" >/dev/null
fi

# Optional packages: installed where possible, and ignored by --check. OpenCV brings 200 MB with the
# drivers of a screen, which its core library links.
optional() {  # PACKAGE CONSEQUENCE
  if dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed || [ "$(id -u)" -ne 0 ]; then return; fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1 || echo "without $1: $2"
}
optional libisal-dev "gzip archives are unpacked by zlib"
optional python3-grpcio "the gRPC server is tested with our own clients only"
optional libopencv-dnn-dev "frozen TensorFlow graphs, Caffe and Darknet are not served"

mkdir -p .deps
scratch=
trap '[ -z "$scratch" ] || rm -rf "$scratch"' EXIT
# These packages are unpacked instead of installed. An installed kubectl would collide with other
# packages. An installed containerd would run as a service and would replace Docker's. The tests
# start a containerd with private sockets and directories.
unpack() {  # DIRECTORY PACKAGE...
  local target=.deps/$1 package
  shift
  echo "fetching Debian's $*"
  apt-cache show "$@" >/dev/null 2>&1 || apt-get update -qq
  scratch=$(mktemp -d)
  # apt may download as its own user.
  chmod 0777 "$scratch"
  (cd "$scratch" && apt-get download -qq "$@" >/dev/null)
  rm -rf "$target" "$target.new"
  for package in "$scratch"/*.deb; do dpkg-deb -x "$package" "$target.new"; done
  mv "$target.new" "$target"
  rm -rf "$scratch"
}

if kubectl_wanted; then unpack kubectl kubernetes-client; fi
if containerd_wanted; then unpack containerd containerd runc containernetworking-plugins; fi
if onnxruntime_wanted; then
  echo "fetching ONNX Runtime"
  bash scripts/onnxruntime.sh
fi
echo "dependencies are in place"
