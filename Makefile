# One command for each thing a developer does. `make help` lists them.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# For `make train`: DATA_DIR names the folder of full MNIST. The default LOGDIR is emptied each time; in another folder
# training continues from its last checkpoint.
DATA_DIR ?= data/digits
LOGDIR ?= build/train
TRAIN_STEPS ?= 1500
# What the workers compute on: cpu, gpu, or a GPU where there is one.
DEVICE ?= auto

python := $(CURDIR)/.venv/bin/python
release := build/release
# Tests that compare with TensorFlow run it in an environment of its own.
export MUSTER_TF_PYTHON ?= $(CURDIR)/.venv-tf/bin/python

# Targets share environments and build folders; each one is parallel inside.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup setup-tests setup-gpu setup-bench setup-cluster setup-lint setup-clang build build-tests test test-cluster \
  test-plain test-sanitizers test-gpu fuzz train bench bench-scaling bench-gpu bench-change install format tidy analyze lint clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

setup: ## install Debian and PyPI packages; quick when they are there
	@tools/setup.sh

setup-tests: ## the same, and TensorFlow for tests and benchmarks
	@tools/setup.sh --tests

setup-gpu: ## the same as setup, and the libraries that a machine with NVIDIA's driver lacks
	@tools/setup.sh --gpu

setup-bench: ## the same as setup, and Gloo, Open MPI and iperf3
	@tools/setup.sh --bench

setup-cluster: ## the same as setup, and what network namespaces, Slurm, Open MPI and SSH need
	@tools/setup.sh --cluster

setup-lint: ## the same as setup, and clang's formatter and linter
	@tools/setup.sh --lint

setup-clang: ## the same as setup, and clang with its sanitizers
	@tools/setup.sh --clang

build: setup ## compile build/release/bin/muster and the Python package in .venv
	@echo "build: configuring $(release)"
	@cmake --preset release -DPython_EXECUTABLE=$(python) >/dev/null
	@echo "build: compiling with $(JOBS) jobs"
	@cmake --build --preset release -j $(JOBS)
	@tools/link_package.sh $(release)/python

build-tests: build ## the same, and the programs of the tests
	@echo "build: compiling the tests"
	@cmake --build --preset release -j $(JOBS) --target muster_tests muster_test_programs

test: setup-tests build-tests ## run the C++ and the Python tests
	@echo "test: C++ unit tests"
	@ctest --test-dir $(release) -L unit -j $(JOBS) --output-on-failure --no-tests=error
	@echo "test: Python tests, with TensorFlow at $(MUSTER_TF_PYTHON)"
	@tools/test_python.sh $(python)

# Training on the whole of MNIST, where DATA_DIR names its folder, takes a minute or two, too long for `make test`.
test-cluster: setup-cluster build-tests ## run clusters over network namespaces (root), Slurm, mpirun and SSH, from installed packages, the soak test, and training on MNIST; DATA_DIR= for the whole of it
	@echo "test-cluster: several hosts on this machine, launchers, installed packages, 13,000 sessions, and MNIST"
	@$(python) -m pytest -s tests/netns tests/launching tests/packaging tests/soak tests/convergence/test_mnist.py

# Calls between tasks of Muster once more: over gRPC, and over links as between machines. Stock peers do not use the
# fast plane: `make test` covers them.
plain_tests := tests/cluster/test_failures.py tests/cluster/test_servers.py tests/cluster/test_client.py \
  tests/interop/test_interop_lost_tasks.py tests/interop/test_interop_cpp.py
network_tests := tests/cluster/test_failures.py tests/cluster/test_client.py
test-plain: setup-tests build-tests ## run the tests of failures and of calls between tasks over gRPC (MUSTER_FAST=0), and over links as between machines
	@echo "test-plain: failures and calls between tasks over gRPC"
	@MUSTER_FAST=0 $(python) -m pytest $(plain_tests) -k "not stock"
	@echo "test-plain: the same over links as between machines"
	@MUSTER_FAST=network $(python) -m pytest $(network_tests) -k "not stock"

test-sanitizers: setup-clang ## run the C++ tests under ASAN+UBSAN, the threaded ones under TSAN
	@tools/test_sanitizers.sh $(JOBS)

fuzz: setup-clang ## feed mutated messages and graphs to every decoder and service; FUZZ_SECONDS=20 FUZZ_RUNS=50000 for each
	@echo "fuzz: building the targets with clang"
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan -j $(JOBS) --target muster_fuzzers
	@tools/fuzz.sh run $(JOBS)

test-gpu: setup-gpu setup-tests build-tests ## run the tests of GPUs on that of this machine, and compare ops with TensorFlow's results; SHARD=2/8 for a part
	@$(python) tests/gpu/on_gpu.py --shard $(or $(SHARD),1/1)

train: setup build ## train on handwritten digits, 1 ps and 2 workers; DATA_DIR= for full MNIST, LOGDIR= for its output, DEVICE=gpu
	@echo "train: muster launch examples/mnist_replica.py, 1 ps and 2 workers; output in $(LOGDIR)"
	@rm -rf build/train
	@$(release)/bin/muster launch --ps 1 --workers 2 examples/mnist_replica.py --train_steps=$(TRAIN_STEPS) \
	    --data_dir=$(DATA_DIR) --logdir=$(LOGDIR) --device=$(DEVICE)

bench: setup-tests setup-bench build ## print Muster and TensorFlow side by side; BENCH_FLAGS=--save keeps it in benchmarks/results/
	@cmake --build --preset release -j $(JOBS) --target allreduce_benches
	@echo "bench: benchmarks/run.py"
	@$(python) benchmarks/run.py $(BENCH_FLAGS)

bench-scaling: setup build ## print how cost grows with workers, nodes, bytes and variables; BENCH_FLAGS=--save keeps and draws it
	@echo "bench-scaling: benchmarks/scaling.py"
	@$(python) benchmarks/scaling.py $(BENCH_FLAGS)

bench-gpu: setup-gpu build ## print Muster and PyTorch (TORCH_PYTHON= names its interpreter) side by side on this machine's GPU; BENCH_FLAGS=--save keeps it in benchmarks/results/gpu/
	@echo "bench-gpu: benchmarks/gpu/run.py"
	@$(python) benchmarks/gpu/run.py $(BENCH_FLAGS)

bench-change: build ## compare speed with another checkout that is built: BEFORE=its folder, ROWS= for some rows only
	@echo "bench-change: benchmarks/before_after.py"
	@$(python) benchmarks/before_after.py "$(BEFORE)" $(BENCH_FLAGS) $(ROWS)

install: build ## install under PREFIX (default /usr/local)
	@echo "install: under $(PREFIX)"
	@cmake --install $(release) --prefix $(abspath $(PREFIX))

format: setup-lint ## rewrite the C++ sources with clang-format
	@echo "format: clang-format over muster/ python/ examples/ tools/ benchmarks/"
	@git ls-files --cached --others --exclude-standard "*.h" "*.cc" | xargs -r clang-format -i

tidy: ## check includes between layers and the words we avoid
	@python3 tools/tidy.py

analyze: setup-lint ## compile everything with clang: thread-safety analysis and its own warnings
	@echo "analyze: compiling with clang++"
	@cmake --preset analyze >/dev/null
	@cmake --build --preset analyze -j $(JOBS) --target all muster_tests muster_test_programs

# clang-tidy takes half a minute for a file, so by default it reads what has changed only.
FILES ?= $(shell git diff --name-only --diff-filter=d HEAD -- 'muster/*.cc')
lint: setup-lint ## run clang-tidy over FILES (default: what is not committed)
	@cmake --preset analyze >/dev/null
	@echo "lint: clang-tidy over $(words $(FILES)) files"
	@printf '%s\n' $(FILES) | xargs -r -n 1 -P $(JOBS) clang-tidy --quiet -p build/analyze

clean: ## remove what was built; the environments stay
	@echo "clean: removing build/"
	@rm -rf build
