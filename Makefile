# The commands of the project; every one works from any folder name, as root or not, and offline once packages are there.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
BUILD ?= build

.PHONY: build demo test asan tsan bench format check clean

build:
	@scripts/install-deps.sh build
	@scripts/build.sh "$(BUILD)" -DMEGATRON_TESTS=OFF

demo:
	@scripts/install-deps.sh demo
	@scripts/build.sh "$(BUILD)" -DMEGATRON_TESTS=OFF
	@scripts/demo.sh "$(BUILD)"

test:
	@scripts/install-deps.sh test
	@scripts/build.sh "$(BUILD)" -DMEGATRON_TESTS=ON
	@scripts/run-tests.sh "$(BUILD)"

asan:
	@scripts/install-deps.sh test
	@scripts/build.sh build-asan -DMEGATRON_TESTS=ON -DMEGATRON_SANITIZE=address
	@scripts/run-tests.sh build-asan

tsan:
	@scripts/install-deps.sh test
	@scripts/build.sh build-tsan -DMEGATRON_TESTS=ON -DMEGATRON_SANITIZE=thread
	@scripts/run-tests.sh build-tsan

bench:
	@scripts/install-deps.sh bench
	@scripts/build.sh "$(BUILD)" -DMEGATRON_TESTS=OFF
	@cmake --build "$(BUILD)" --target kernel_bench -j $(JOBS)
	@bench/run.sh "$(BUILD)"

format:
	@scripts/install-deps.sh dev
	@git ls-files '*.cc' '*.h' | tr '\n' '\0' | xargs -0 clang-format-14 -i

check:
	@scripts/install-deps.sh dev
	@scripts/check.sh

clean:
	rm -rf build build-asan build-tsan build-debug build-clang demo-run
