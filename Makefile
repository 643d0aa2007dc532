# Forwards to tools/ and to the CMake presets; nothing is decided here.
#   make | test | demo | debug | asan | mpich | cuda | format | check | tidy | install PREFIX=... | clean
SETUP  ?= tools/setup
JOBS   ?= $(shell nproc)
PREFIX ?= /usr/local

build   = cmake --build build/$(1) --parallel $(JOBS)
sources = $$(find src include tests -name '*.[ch]pp')

.DEFAULT_GOAL := release
.PHONY: release test demo debug asan mpich cuda format check tidy install clean setup setup-mpich setup-lint

setup:
	@$(SETUP)
setup-mpich:
	@$(SETUP) --mpich
setup-lint:
	@$(SETUP) --lint

build/mpich/build.ninja: | setup-mpich
build/%/build.ninja: CMakePresets.json | setup
	cmake --preset $*
	@touch $@

release: build/release/build.ninja
	@$(call build,release) --target trireme

test: build/release/build.ninja
	@$(call build,release)
	@# Tests wait more than they compute. One that fails says so and is run once more: doc/verification.md tells why.
	@ctest --test-dir build/release --output-on-failure --no-tests=error --repeat until-pass:2 -j $$(($(JOBS) + 1))

demo: release
	@tools/demo

debug asan mpich cuda: %: build/%/build.ninja
	@$(call build,$@)

format: setup-lint
	@clang-format -i $(sources)

check: setup-lint
	@tools/check_layers
	@clang-format --dry-run -Werror $(sources)

tidy: setup-lint build/release/build.ninja
	@clang-tidy -p build/release --quiet $$(find src -name '*.cpp')

install: release
	cmake --install build/release --prefix $(PREFIX)

clean:
	rm -rf build
