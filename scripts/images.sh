#!/usr/bin/env bash
# Builds the container images of this version from the release build, as OCI archives:
# build/images/{varda,varda-serve,varda-train,varda-aggregate}-VERSION.oci.tar. `ctr images import` and `podman load`
# read them.
#
#   scripts/images.sh                 all images, with buildah (FROM scratch)
#   scripts/images.sh root NAME DIR   only the contents of the image NAME, as a directory tree;
#                                     needs no buildah
#
# An image holds the stripped program, the shared libraries that it and its plug-ins load, the
# certificates of the public authorities, and a user. Each library has the copyright file of its
# Debian package. There is no shell and no package manager. The program runs as 65532 and writes
# nothing below /. The same commit on the same Debian packages makes the same bytes.
#
# `make deps` does not install buildah: apt-get install --no-install-recommends buildah. No root is
# needed: an ordinary user gets a user namespace. VARDA_BIN names another directory of programs,
# VARDA_IMAGES another output directory.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/.."
source=$PWD
bin=${VARDA_BIN:-build/release/bin}
out=${VARDA_IMAGES:-build/images}
onnxruntime=.deps/onnxruntime/lib/libonnxruntime.so.1
umask 022
# The time of the last commit, so that a later build of the same sources is identical.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}
export SOURCE_DATE_EPOCH LC_ALL=C

fail() { echo "images: $*" >&2; exit 1; }

# Copies the libraries of the files $2... to the paths where the loader looks, and the licence of
# the package that owns each library.
libraries() {
  local root=$1 linked line file owner
  shift
  linked=$(ldd "$@")
  if grep 'not found' <<< "$linked" >&2; then fail "libraries are missing"; fi
  local -A real=()  # by the loader's name
  while read -r file; do real[$file]=$(readlink -f "$file"); done < <(sed -nE 's/^\t(.* => )?(\/[^ ]+) \(0x.*/\2/p' <<< "$linked" | sort -u)
  for file in "${!real[@]}"; do install -D -m 0755 "${real[$file]}" "$root/usr/${file#/usr}"; done
  # Packages from before the merge of /lib into /usr/lib use the former path.
  local -A owners=()
  while read -r line; do owners[${line##*: }]=${line%%[:,]*}; done < <(dpkg-query -S "${real[@]}" "${real[@]#/usr}" 2>/dev/null)
  for file in "${real[@]}"; do
    owner=${owners[$file]:-${owners[${file#/usr}]:-}}
    [ -n "$owner" ] || fail "no package owns $file, so its licence is not known"
    copyright "$root" "$owner"
  done
}

copyright() {  # ROOT PACKAGE
  [ -e "$1/usr/share/doc/$2/copyright" ] || install -D -m 0644 "$(readlink -f "/usr/share/doc/$2/copyright")" "$1/usr/share/doc/$2/copyright"
}

program() {  # ROOT FILE TO
  install -D -m 0755 "$2" "$1$3"
  strip --strip-all "$1$3"
}

root_of() {  # NAME DIR: the tree of an image
  local name=$1 root=$2
  [ -x "$bin/$name" ] || fail "$bin/$name is missing: run make build"
  rm -rf "$root"
  mkdir -p "$root"/usr/{bin,lib,lib64,share/doc} "$root"/{etc,tmp,proc,sys,dev,run,var/lib}
  ln -s usr/bin usr/lib usr/lib64 "$root"
  ln -s ../run "$root/var/run"
  chmod 1777 "$root/tmp"
  program "$root" "$bin/$name" "/usr/bin/$name"
  local loaded=("$bin/$name")
  if [ "$name" = varda-serve ] || [ "$name" = varda-train ]; then
    local engine=$bin/../lib/varda/varda-engine-onnxruntime.so
    [ -f "$engine" ] || fail "$engine is missing: run make deps build"
    [ -f "$onnxruntime" ] || fail "$onnxruntime is missing: run make deps"
    program "$root" "$engine" /usr/lib/varda/varda-engine-onnxruntime.so
    # The plug-in looks in its own directory first.
    program "$root" "$(readlink -f "$onnxruntime")" /usr/lib/varda/libonnxruntime.so.1
    install -D -m 0644 deploy/images/onnxruntime.copyright "$root/usr/share/doc/onnxruntime/copyright"
    loaded+=("$engine" "$onnxruntime")
    local operators=$bin/../lib/varda/varda-operators-onednn.so
    if [ "$name" = varda-train ] && [ -f "$operators" ]; then
      program "$root" "$operators" /usr/lib/varda/varda-operators-onednn.so
      loaded+=("$operators")
    fi
  fi
  # Frozen TensorFlow graphs, Caffe and Darknet, if the build has that engine.
  local opencv=$bin/../lib/varda/varda-engine-opencv.so
  if [ "$name" = varda-serve ] && [ -f "$opencv" ]; then
    program "$root" "$opencv" /usr/lib/varda/varda-engine-opencv.so
    loaded+=("$opencv")
  fi
  libraries "$root" "${loaded[@]}"
  install -D -m 0644 LICENSE "$root/usr/share/doc/varda/copyright"
  # OpenSSL looks there. The C library resolves names from files and DNS without plug-ins.
  install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  copyright "$root" ca-certificates
  mkdir -p "$root/usr/lib/ssl"
  ln -s /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
  echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
  printf '%s\n' 'root:x:0:0:root:/:/nonexistent' 'varda:x:65532:65532:varda:/nonexistent:/nonexistent' > "$root/etc/passwd"
  printf '%s\n' 'root:x:0:' 'varda:x:65532:' > "$root/etc/group"
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

sizes() {  # ROOT: the largest files, in MiB
  (cd "$1" && find usr -type f -printf '%s %f\n' | sort -rn | head -n 6 | awk '{printf "    %6.1f MiB  %s\n", $1 / 1048576, $2}')
}

pack() {  # NAME TITLE: the tree becomes an archive
  local name=$1 title=$2 root=$work/root-$1 layout=$work/oci-$1 container
  root_of "$name" "$root"
  container=$(buildah "${storage[@]}" from scratch)
  buildah "${storage[@]}" copy -q --chown 0:0 "$container" "$root" / >/dev/null
  buildah "${storage[@]}" config --entrypoint "[\"/usr/bin/$name\"]" --cmd '' --user 65532:65532 --workingdir / --env PATH=/usr/bin \
    --created-by 'scripts/images.sh' \
    --label "org.opencontainers.image.title=$title" \
    --label "org.opencontainers.image.version=$version" \
    --label "org.opencontainers.image.revision=$revision" \
    --label "org.opencontainers.image.created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" \
    --label "org.opencontainers.image.licenses=Apache-2.0" \
    "$container"
  buildah "${storage[@]}" commit -q --rm --identity-label=false --disable-compression=false --signature-policy "$work/policy.json" \
    --timestamp "$SOURCE_DATE_EPOCH" "$container" "oci:$layout:localhost/$name:$version" >/dev/null
  name_image "$layout" "localhost/$name:$version"
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -f "$work/$name.tar" -C "$layout" oci-layout index.json blobs
  mv "$work/$name.tar" "$out/$name-$version.oci.tar"
  printf '%s  localhost/%s:%s\n  %s MiB packed, %s MiB unpacked\n' "$out/$name-$version.oci.tar" "$name" "$version" \
    "$(du -m "$out/$name-$version.oci.tar" | cut -f1)" "$(du -sm "$root" | cut -f1)"
  sizes "$root"
}

# containerd reads the full name from its own annotation. The annotation of OCI is for the tag.
name_image() {
  python3 - "$1/index.json" "$2" <<'PY'
import json, sys
path, name = sys.argv[1:]
index = json.load(open(path))
annotations = index['manifests'][0].setdefault('annotations', {})
annotations['io.containerd.image.name'] = name
annotations['org.opencontainers.image.ref.name'] = name
json.dump(index, open(path, 'w'), sort_keys=True, separators=(',', ':'))
PY
}

if [ "${1:-}" = root ]; then
  [ $# = 3 ] || fail "usage: images.sh root NAME DIR"
  root_of "$2" "$3"
  exit 0
fi
[ $# = 0 ] || fail "usage: images.sh [root NAME DIR]"
command -v buildah >/dev/null || fail "buildah is missing: apt-get install --no-install-recommends buildah"
if [ "$(id -u)" -ne 0 ] && [ -z "${VARDA_IMAGES_INSIDE:-}" ]; then
  # The files of the image must belong to root. The caller is root in a user namespace, without an
  # entry in /etc/subuid.
  unshare -Ur true 2>/dev/null || fail "this user may not make user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces): run it as root"
  exec unshare -Urm --propagation private env VARDA_IMAGES_INSIDE=1 _CONTAINERS_USERNS_CONFIGURED=done HOME="$source/build" bash scripts/images.sh
fi
version=$("$bin/varda" --version | cut -d' ' -f2)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
mkdir -p "$out"
work=$(mktemp -d "$(readlink -f "$out")/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# A private storage, removed with the work directory, leaves the user's images untouched.
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
export BUILDAH_ISOLATION=chroot XDG_RUNTIME_DIR="$work/run" TMPDIR="$work"
mkdir -p "$work/run"
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > "$work/policy.json"
pack varda "Varda: operator, gateway and agent"
pack varda-serve "Varda: model server with ONNX Runtime"
pack varda-train "Varda: trainer with ONNX Runtime"
pack varda-aggregate "Varda: aggregator of federated jobs"
