# The two main commands: `make demo` and `make test`. Only `make deps` needs root.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
JOBS ?= $(shell nproc)
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help deps deps-if-missing build dev asan tsan demo demo-edge demo-joint demo-train demo-federated demo-incremental test unit checks threads conformance e2e nightly bench fuzz images manifests format format-check crds clean

help:            ## list the targets
	@grep -hE '^[a-z0-9-]+: .*##|^[a-z0-9-]+: *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

deps:            ## install what is missing (root for Debian packages)
	@bash scripts/deps.sh

deps-if-missing:
	@bash scripts/deps.sh --check >/dev/null 2>&1 || bash scripts/deps.sh

build: deps-if-missing  ## the programs, in build/release/bin
	@[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
	@ninja -C build/release -j $(JOBS) programs

demo: build      ## narrated: the main job on this machine, the edge, joint inference, training, federated and incremental learning
	@python3 scripts/demo.py
	@python3 scripts/demo_edge.py
	@python3 scripts/demo_joint.py
	@python3 scripts/demo_train.py
	@python3 scripts/demo_federated.py
	@python3 scripts/demo_incremental.py

demo-edge: build  ## an edge node on a failing link: datasets, cut off, killed, back again
	@python3 scripts/demo_edge.py

demo-joint: build  ## a small model at the edge, a large one in the cloud: table, curve, lost cloud
	@python3 scripts/demo_joint.py

demo-train: build ## an edge node trains, is killed and goes on; the server switches to the result
	@python3 scripts/demo_train.py

demo-federated: build  ## five nodes train one model; again under attack, with kills: the same bytes
	@python3 scripts/demo_federated.py

demo-incremental: build  ## a served model learns two new digits from what it found hard; a bad version goes back by itself
	@python3 scripts/demo_incremental.py

test: build      ## every stage below except those on request
	@bash scripts/test.sh

unit: deps-if-missing  ## tests of every room and the fuzz targets, with ASan and UBSan
	@bash scripts/test.sh unit fuzz

checks: build    ## on the release build: simulator, crash campaigns, API conformance, generated files
	@bash scripts/test.sh checks

threads: deps-if-missing  ## TSan over the rooms with many threads
	@bash scripts/test.sh threads

conformance: build  ## recorded kube-apiserver answers against the embedded API server
	@bash scripts/test.sh conformance

e2e: build       ## real processes and clients
	@bash scripts/test.sh e2e

bench: build     ## on request: benchmark tables with references
	@cmake --preset release -DVARDA_BENCH=ON >/dev/null
	@ninja -C build/release -j $(JOBS) benchmarks
	@bash scripts/bench.sh

fuzz: deps-if-missing  ## on request: every fuzz target for FUZZ_SECONDS (default 60) each
	@bash scripts/fuzz.sh

nightly: build   ## on request: long campaigns of at most three hours; report in build/nightly/report.md
	@bash scripts/nightly.sh

images: build    ## container images of the release build: build/images/*.oci.tar (needs buildah)
	@bash scripts/images.sh

manifests: deps-if-missing  ## regenerate deploy/varda.yaml from deploy/kustomize
	@python3 scripts/manifests.py

crds: build      ## regenerate deploy/crds and docs/reference from the C++ types and --help
	@ninja -C build/release -j $(JOBS) --quiet api_test
	@UPDATE_GOLDEN=1 build/release/src/api/api_test --gtest_brief=1 --gtest_filter='*Generated*' || true  # it fails when it rewrites
	@build/release/src/api/api_test --gtest_brief=1 --gtest_filter='*Generated*'
	@python3 tests/structure/cli_reference.py build/release/bin/varda --write
	@python3 scripts/manifests.py

format:          ## clang-format over our sources
	@git ls-files '*.h' '*.cc' | xargs clang-format-14 -i

format-check:
	@git ls-files '*.h' '*.cc' | xargs clang-format-14 --dry-run --Werror

clean:
	rm -rf build
