# accelshare: every target installs what it needs first. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
SHELL  := bash

.DEFAULT_GOAL := help
.PHONY: help demo test test-real test-vm up down status check format bench bench-node cluster image protos manifests lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): requirements/dev.txt pyproject.toml
	@echo "installing what requirements/dev.txt pins into $(VENV): some 60 packages, half a minute"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"Python 3.11 or newer is needed, {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.12 …")'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "no venv module: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@set -o pipefail; $(PY) -m pip install --disable-pip-version-check --progress-bar off --require-hashes -r requirements/dev.txt \
	  | sed -un 's/^Collecting \([^ ]*\).*/  fetching \1/p; s/^Installing collected packages.*/  installing them/p'
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)  ## the main job in seconds, from manifest to container: real extender and agents; no cluster, no hardware, no root
	@$(PY) -m demo $(if $(PROFILES),--profiles $(PROFILES))

test: $(READY)  ## every test that needs no root and no built programs: minutes
	@$(PY) -m tests

test-real: $(READY)  ## the tests on a real control plane, kubelet and containerd; builds them first (root for the node's)
	@$(PY) -m tests --real

test-vm: $(READY)  ## the tests on a virtual node with its own kernel, systemd and cgroup v2, under QEMU; builds it first (root)
	@$(PY) -m tests --vm

check: $(READY)  ## ruff, mypy --strict, the import contracts of packages, docs tests; warnings are errors
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(PY) -m pytest -q tests/contract/test_packages.py tests/contract/test_docs.py tests/contract/docs/test_command_table.py

format: $(READY)  ## let ruff put the code in order
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(READY)  ## measure on the real control plane, write docs/benchmarks.md
	@$(PY) -m bench

bench-node: $(READY)  ## measure the agent and a real node, write docs/benchmarks-node.md (root)
	@$(PY) -m bench.node

up: $(READY)  ## a whole Kubernetes of one node on this machine, as kubeadm makes it, accelshare on it, fake cards of four vendors (root)
	@$(PY) -m cluster up --fake-cards --accelshare

down: $(READY)  ## end it and remove all it made but the cache of built programs
	@$(PY) -m cluster down

status: $(READY)  ## what runs of it
	@$(PY) -m cluster status

cluster: $(READY)  ## build the pinned Kubernetes binaries into the cache
	@$(PY) -m cluster build

image: $(READY)  ## build the container image; IMAGE_FLAGS="--from-debian" where no registry is reached
	@$(PY) -m cluster image $(IMAGE_FLAGS)

protos: $(READY)  ## generate Python from the .proto files of kubelet, NRI, ttrpc and CRI
	@$(PY) -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/accelshare/agent/{device_plugin/api,nri/protocol}/*.proto
	@$(PY) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. tests/e2e/nri/cri.proto

manifests: $(READY)  ## render the chart into deploy/manifests, one directory for each vendor
	@$(PY) -m deploy.render

lock: $(READY)  ## compile requirements/*.in to hash-pinned *.txt
	@for set in runtime dev build go; do $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" requirements/$$set.in -o requirements/$$set.txt; done

clean:  ## remove the virtual environment and caches of tools (the cluster's binaries stay in their cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
