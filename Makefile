# Targets for people and CI. `make` lists them.

.DEFAULT_GOAL := help
.NOTPARALLEL:

# Where `make demo` and `make reproduce` put the HTML report.
REPORT ?= report
# How long `make soak` fuzzes, and how long it searches, seconds; the seed, to repeat a search.
SOAK_SECONDS ?= 3600
SEED ?=
# How long `make fuzz` fuzzes in all, seconds.
FUZZ_SECONDS ?= 60

# Where `make install` puts files, below DESTDIR if that is set; and which build it and `make deb` use:
# release or dev.
PREFIX ?= /usr/local
PROFILE ?= release

# The kernel that `make test-vm` and `make bench-vm` boot: that of .tools/vm/kernel-$(KERNEL).
KERNEL ?= debian
# Further options of `make test-vm`, such as `--leg numa`; `--help` lists them.
VM_OPTIONS ?=
# How often `make bench-vm` runs each scheduler, and a file for the time of every run.
SEEDS ?= 4
CSV ?=
# Further schedulers of `make bench-vm` and `make arena-vm`: their object files.
OBJECTS ?=

# Tools that scripts/setup installs come before the machine's own.
export PATH := $(CURDIR)/.tools/bin:$(PATH)
# The compiler of BPF programs, and the path of its library for bindgen: what scripts/setup installs, or your
# own.
export BPF_CLANG ?= clang-19
export LIBCLANG_PATH ?= /usr/lib/llvm-19/lib
# Warnings of rustdoc, such as broken links, are errors.
export RUSTDOCFLAGS := -D warnings

.PHONY: help build install uninstall deb wheel notebooks demo reproduce calibrate test check soak mutants test-deb test-vm lint deny fuzz bench bench-vm arena-vm docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s  %s\n", $$1, $$2 }' Makefile

build: ## Build the programs in release mode (PROFILE=dev: for tests)
	@scripts/setup build
	cargo build --locked --profile $(PROFILE)

install: ## Install what `make build` built (PREFIX=/usr/local, DESTDIR=, PROFILE=release)
	@scripts/install $(PREFIX) $(PROFILE)

uninstall: ## Remove what `make install` installed
	@scripts/install --remove $(PREFIX)

deb: build ## Build a Debian package in target/debian
	@scripts/setup deb
	@scripts/deb $(PROFILE)

wheel: ## Build the Python package's wheel in target/wheels, test it in a fresh environment, and execute the notebooks (PROFILE=dev: for tests)
	@scripts/setup wheel
	@scripts/wheel $(PROFILE)

notebooks: ## Write the pages of the book's notebooks anew, with the wheel that `make wheel` has built
	@scripts/setup wheel
	@scripts/notebooks --write

demo: ## A first look in minutes: shorter runs of every experiment, tables here, and an HTML report
	@scripts/setup build
	cargo build --locked --package tandem --profile demo
	target/demo/tandem reproduce --quick --out $(REPORT)
	@echo
	@echo "The HTML report is $(REPORT)/report.html: open it in a browser. \`make reproduce\` runs all of it."

reproduce: build ## Reproduce every experiment in full: tables here, and an HTML report
	target/release/tandem reproduce --out $(REPORT)
	@echo
	@echo "The HTML report is $(REPORT)/report.html: open it in a browser."

calibrate: build ## Find the free constants of every experiment that meet its baseline: make reproduce shows ranges over them
	target/release/tandem calibrate

test: lint deny ## What must hold: lint, deny, all tests and examples, the wheel, a search, test-deb, test-vm without what is long
	@scripts/test
	@$(MAKE) --no-print-directory wheel PROFILE=dev
	@MUTANT_SECONDS=0 scripts/mutants
	@scripts/check 60 held
	@$(MAKE) --no-print-directory test-deb
	@$(MAKE) --no-print-directory test-vm VM_OPTIONS=--short

check: ## Search two minutes for a case that breaks a promise of the scheduler (SEED=7: with this seed)
	@scripts/check 120

soak: ## What takes long: test-vm with all that it has, fuzz, and then check, both for SOAK_SECONDS
	@$(MAKE) --no-print-directory test-vm
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(SOAK_SECONDS)
	@scripts/check $(SOAK_SECONDS)

mutants: ## Plant faults in copies of the scheduler, and count how many the search finds (MUTANT_SECONDS=600 each)
	@scripts/mutants

test-deb: ## Install, upgrade and remove the Debian package on a fresh Debian, and boot that in QEMU
	@scripts/setup deb
	@scripts/setup vm
	@scripts/kernel-debian
	@scripts/programs tandem tandemd
	@scripts/test-deb

test-vm: ## Boot real kernels in QEMU and try the scheduler on them (KERNEL=6.12: on an older one)
	@scripts/setup vm
	@scripts/kernel-$(KERNEL)
	@scripts/programs tandem tandemd vm-tests vm-guest load-scheduler
	target/debug/vm-tests --kernel .tools/vm/kernel-$(KERNEL) $(VM_OPTIONS)

lint: ## Check formatting, and that neither clippy nor rustdoc warns
	@scripts/setup test
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo doc --locked --workspace --no-deps --document-private-items --quiet

deny: ## Check licences and sources of the dependencies (not advisories: their database needs a network)
	@scripts/setup test
	cargo deny --locked check --allow unused-wrapper licenses bans sources
	cargo deny --locked --manifest-path fuzz/Cargo.toml --config deny.toml check --allow unused-wrapper licenses bans sources

fuzz: ## Fuzz the readers of scenarios, hwloc's XML, processes, sysfs, the service's files and requests, recordings, and the control socket for FUZZ_SECONDS
	@scripts/setup test
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

bench: ## Measure the simulator's speed: events/s and ns/event
	@scripts/setup build
	cargo bench --locked --workspace --bench '*'

bench-vm: ## Compare schedulers on a real kernel in QEMU, in instruction-counted time (SEEDS=8, CSV=FILE, OBJECTS=FILES, KERNEL=6.12)
	@scripts/setup bench-vm
	@scripts/kernel-$(KERNEL)
	@scripts/programs tandem tandemd vm-bench vm-guest load-scheduler
	target/debug/vm-bench --kernel .tools/vm/kernel-$(KERNEL) --seeds $(SEEDS) $(if $(CSV),--csv $(CSV)) $(addprefix --object ,$(OBJECTS))

arena-vm: ## Rank schedulers on a real kernel in QEMU and in the simulator (CSV=FILE, OBJECTS=FILES)
	@scripts/setup test
	@scripts/setup vm
	@scripts/kernel-$(KERNEL)
	@scripts/programs tandem tandemd vm-arena vm-guest load-scheduler
	target/debug/vm-arena --kernel .tools/vm/kernel-$(KERNEL) --resume $(if $(CSV),--csv $(CSV)) $(addprefix --object ,$(OBJECTS))

docs: ## Build the book into docs/book and the API documentation into target/doc
	@scripts/setup docs
	mdbook build docs
	cargo doc --locked --workspace --no-deps --document-private-items

clean: ## Remove what was built (tools in .tools stay)
	cargo clean
	cargo clean --manifest-path fuzz/Cargo.toml
	rm -rf docs/book fuzz/artifacts fuzz/corpus $(REPORT)
