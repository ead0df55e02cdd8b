# Everything a developer needs. `make demo` and `make test` do all their own set-up in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests start hundreds of processes: each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
INSTALLED := $(VENV)/.installed

.PHONY: demo up env test test-all test-exhaustive fuzz test-random test-pythons test-airflows test-installs live-check release-check mutants lint format docs reference bench proto clean

demo: $(INSTALLED)  ## a real Airflow, a local Salesforce org and spark-submit: two runs of the micro-batch DAG
	@$(BIN)/python scripts/demo.py

up: $(INSTALLED)  ## Airflow with its UI, a local org and the example DAGs, until Ctrl-C
	@$(BIN)/python scripts/up.py

env:  ## .env for docker-compose.yaml, with fresh secrets; never over one that is there
	@$(PYTHON) scripts/env.py

test: lint  ## lint, unit and integration tests, and the main job on a real Airflow with a real spark-submit
	$(BIN)/python -m pytest -n auto -m 'not extended' tests localorg/tests

test-all: lint  ## that and the rest: deployment, browser, database servers, kill -9, random seeds, every example DAG
	$(BIN)/python -m tests.support.java_archive
	$(BIN)/python -m pytest -n auto --durations=10 -m 'not exhaustive' tests localorg/tests

test-exhaustive: lint  ## tests of many minutes, before a release: three interruptions in every order, a cluster that loses a worker
	$(BIN)/python -m pytest -n auto --durations=10 -m exhaustive tests localorg/tests

SECONDS ?= 60
fuzz: $(INSTALLED)  ## hostile inputs, other ones each time, SECONDS=60 for each target; test-all has a minute of fixed ones
	@for target in $$($(BIN)/python -m tests.fuzz 2>&1); do $(BIN)/python -m tests.fuzz $$target $(SECONDS) random || exit 1; done

test-random: $(INSTALLED)  ## what `make test` runs, in random order: tests do not lean on each other
	$(BIN)/python -m pytest -n auto -p randomly -m 'not extended' tests localorg/tests

mutants: $(INSTALLED)  ## how many of a fixed sample of small changes to the package its tests notice
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --group mutants
	@$(BIN)/python scripts/mutants.py

lint: $(INSTALLED)  ## ruff, mypy, the import rule of the rooms, and a report on prose that never fails
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/prose.py

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## the site of the documentation, in build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

reference: $(INSTALLED)  ## docs/reference/, from the docstrings
	$(BIN)/python scripts/reference.py

bench: $(INSTALLED)  ## each benchmark prints JSON lines with `benchmark`, `ratio` and the figures behind it
	@for benchmark in drain drain_50ms embedded event_log replica_decode replica_merge streaming streaming_faults streams_page waiting; do $(BIN)/python benchmarks/$$benchmark.py || exit 1; done

test-pythons:  ## the unit tests on every supported Python that is installed
	@for version in 3.11 3.12 3.13 3.14; do \
	  python$$version -c '' 2>/dev/null || { echo "python$$version is not installed: left out"; continue; }; \
	  $(MAKE) --no-print-directory VENV=.venv-$$version PYTHON=python$$version .venv-$$version/.installed && \
	  .venv-$$version/bin/python -m pytest tests/unit localorg/tests/unit -q || exit 1; \
	done

test-airflows: $(INSTALLED)  ## the suites that touch Airflow, and one system test, on 3.1, 3.2, the Airflow of constraints.txt and 3.4
	@$(BIN)/python scripts/airflows.py

OPTIONS ?=
test-installs: $(INSTALLED)  ## the wheel with each extra beside Airflow's published constraints; OPTIONS='--constraints FOLDER 3.3.2'
	@$(BIN)/python scripts/installs.py $(OPTIONS)

live-check: $(INSTALLED)  ## holds the local org against the org of AIRFLOW_CONN_SALESFORCE_LIVE; OPTIONS=--quick and others
	@AIRFLOW_HOME=$(CURDIR)/build/live-check/airflow $(BIN)/python -m live_check $(OPTIONS)

TAG ?=
release-check: $(INSTALLED)  ## the distributions of a release, in build/release; of a tag with TAG=v0.1.0
	@$(BIN)/python scripts/release_check.py $(TAG)

proto:  ## regenerate the Pub/Sub API code of both distributions; an old generator, so that protobuf 6 and 7 can both run it
	$(PYTHON) -m venv build/protoc
	build/protoc/bin/python -m pip install --quiet 'grpcio-tools==1.75.1' 'setuptools<81'
	build/protoc/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  airflow_provider_sfstream/salesforce/pubsub_api.proto
	cd localorg && ../build/protoc/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
	  sfstream_localorg/pubsub/pubsub_api.proto
	# A pool of their own: a process may also have somebody else's code of these messages, which the shared pool refuses.
	sed -i 's/_descriptor_pool\.Default()/_descriptor_pool.DescriptorPool()/' \
	  airflow_provider_sfstream/salesforce/pubsub_api_pb2.py localorg/sfstream_localorg/pubsub/pubsub_api_pb2.py

$(INSTALLED): pyproject.toml localorg/pyproject.toml constraints.txt
	@java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || { echo "Java 17 or newer is needed by Spark" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]' --editable localorg --group dev --group object-storage
	@touch $@

clean:
	rm -rf $(VENV) .venv-3.* .demo .up build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
