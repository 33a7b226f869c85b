# accelshare: every target installs what it needs first. `make help` lists them.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
READY  := $(VENV)/.ready
SITE   := $(VENV)/site
SHELL  := bash

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

test-nodes: $(READY)  ## the tests on a real cluster of three nodes, each with its own kubelet and cards; builds it first (root)
	@$(PY) -m tests --nodes

test-coscheduling: $(READY)  ## the tests of gangs with the coscheduling plugin on a real control plane; builds it first
	@$(PY) -m tests --coscheduling

test-vm: $(READY)  ## the tests on a virtual node with its own kernel, systemd and cgroup v2, under QEMU; builds it first (root)
	@$(PY) -m tests --vm

fuzz: $(READY)  ## hostile input at every place where input comes in; CASES=1000000 (100000), SEED=7 repeats a run
	@$(PY) -m tests --fuzz $(or $(CASES),100000) $(if $(SEED),--seed $(SEED))

trust: $(READY)  ## faults by the hundred while pods come and go, judged from outside; writes docs/trust.md; SEED=7, PODS=2000, FAULTS=220 (root for the node's part)
	@$(PY) -m tests.trust $(if $(SEED),--seed $(SEED)) $(if $(PODS),--pods $(PODS)) $(if $(FAULTS),--faults $(FAULTS))

check: $(READY) $(SITE)/.ready  ## ruff, mypy --strict, the import contracts of packages, docs tests, docs site; warnings are errors
	@$(MAKE) --no-print-directory --jobs=2 check-types check-code check-docs

.PHONY: check-types check-code check-docs
check-types:
	@$(VENV)/bin/mypy

check-code:
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/lint-imports

check-docs:
	@$(PY) -m pytest -q tests/contract/test_packages.py tests/contract/test_docs.py tests/contract/docs/test_command_table.py
	@$(PY) -m deploy.site $(SITE)/bin/mkdocs

format: $(READY)  ## let ruff put the code in order
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(READY)  ## measure on the real control plane, write docs/benchmarks.md; GPUSHARE=a checkout of its extender
	@$(PY) -m bench $(if $(GPUSHARE),--gpushare-source $(GPUSHARE))

bench-node: $(READY)  ## measure the agent and a real node, write docs/benchmarks-node.md (root)
	@$(PY) -m bench.node

bench-load: $(READY)  ## ten minutes of load in a large cluster on the real control plane, write docs/benchmarks-load.md
	@$(PY) -m bench.load

up: $(READY)  ## a whole Kubernetes on this machine, as kubeadm makes it, accelshare on it, fake cards of four vendors; NODES=3 (root)
	@$(PY) -m cluster up --fake-cards --accelshare $(if $(NODES),--nodes $(NODES))

down: $(READY)  ## end it and remove all it made but the cache of built programs
	@$(PY) -m cluster down

status: $(READY)  ## what runs of it
	@$(PY) -m cluster status

cluster: $(READY)  ## build the pinned Kubernetes binaries into the cache
	@$(PY) -m cluster build

image: $(READY)  ## build the container image; IMAGE_FLAGS="--from-debian" where no registry is reached
	@$(PY) -m cluster image $(IMAGE_FLAGS)

dist: $(READY)  ## build a wheel (commands, kubectl plugins, demo), an sdist, the packed chart and the release notes into dist/; SOURCE=https://… goes into the chart
	@rm -rf dist
	@$(PY) -m hatchling build --directory dist
	@$(PY) -m deploy.package_chart dist $(SOURCE)
	@$(PY) -m deploy.release notes > dist/release-notes.md

version: $(READY)  ## write the version VERSION=0.2.0 into every place that has it
	@$(PY) -m deploy.release set $(VERSION)

$(SITE)/.ready: requirements/site.txt | $(READY)
	@echo "installing what requirements/site.txt pins into $(SITE): some 30 packages"
	@$(PY) -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/site.txt
	@touch $@

site: $(SITE)/.ready  ## build the docs as a website into build/site: strict, nothing from other hosts, search in both languages
	@$(PY) -m deploy.site $(SITE)/bin/mkdocs

protos: $(READY)  ## generate Python from the .proto files of kubelet, NRI, ttrpc, CRI and Kubernetes' lists
	@$(PY) -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/accelshare/{agent/{device_plugin/api,nri/protocol},wire}/*.proto
	@$(PY) -m grpc_tools.protoc -I. --python_out=. --pyi_out=. tests/e2e/nri/cri.proto

manifests: $(READY)  ## render the chart into deploy/manifests; write its README and schema texts
	@$(PY) -m deploy.render
	@$(PY) -m deploy.chart_pages

lock: $(READY)  ## compile requirements/*.in to hash-pinned *.txt
	@for set in runtime dev build go site; do $(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" requirements/$$set.in -o requirements/$$set.txt; done

clean:  ## remove the virtual environment and caches of tools (the cluster's binaries stay in their cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
