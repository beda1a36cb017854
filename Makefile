# `make` prints the targets. VENV is the environment everything runs in; it is made where it is missing.
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
SERVICE := $(VENV)/.installed-service
SPARK := $(VENV)/.installed-spark

# processes for the tests that compute, and for those that mostly sleep; `pyproject.toml` describes the markers
WORKERS ?= 2
SLEEPERS ?= 4
SLOW ?= long or hypothesis
PYTEST := $(PY) -m pytest -q -n $(WORKERS)

# Run the tests of a marker expression: those that sleep, then those that compute. Attacks measure the answers of
# neighbours, so nothing else may run beside them.
define in_two_pools
@$(PY) -m pytest -q -n $(SLEEPERS) --dist worksteal --junitxml=$(VENV)/.sleepers.xml -m "waits and ($(1))" \
  $$(grep -rl 'mark\.waits' tests); slept=$$?; \
$(PYTEST) --dist worksteal --junitxml=$(VENV)/.workers.xml -m "not waits and ($(1))"; exit $$(($$? | slept))
endef

.PHONY: help setup run test-fast test test-slow test-durations test-trino test-spark test-spark-long test-engines test-judges chaos way lint fmt type cases bench bench-audit bench-cache bench-cedar bench-dialects bench-engines bench-pipeline bench-reload bench-replay bench-rewrite bench-start bench-trino bench-more bench-workers soak protos docs check check-all

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: ## what the tests need from Debian, such as Redis and chromium, and OpenFGA; without root, prints the line for root
	@.ci/setup

# the service alone
$(SERVICE): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	$(PY) -m compileall -q pdp
	touch $(SERVICE)

# with the tools of developers
$(STAMP): $(SERVICE)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(STAMP)

# with Spark
$(SPARK): $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,spark]'
	touch $(SPARK)

run: $(SERVICE) ## install the service, and serve the example policies on loopback; ARGS="--set server.http=127.0.0.1:9181"
	$(VENV)/bin/pdp serve --example $(ARGS)

test-fast: $(STAMP) ## unit tests and case files, without processes and databases; CONTRIBUTING.md has the times
	$(PYTEST) --dist loadfile -m "not process and not postgres and not waits and not long and not spark"

test: $(STAMP) ## every test but those of test-slow, test-spark and test-trino; `make test-durations` says where its time went
	$(call in_two_pools,not long and not spark)

test-slow: export TEST_EXAMPLES := all
# attacks and kills need the cores while they wait
test-slow: SLEEPERS := 2
test-slow: $(STAMP) ## what `make test` leaves out: all generated examples, attacks that take a minute, long waits, many kills
	$(call in_two_pools,($(SLOW)) and not spark)

test-durations: ## the slowest tests of the last `make test` or `make test-slow`, and the sum of each folder
	@python3 tests/durations.py $(VENV)/.workers.xml $(VENV)/.sleepers.xml

test-trino: $(STAMP) ## a real Trino, fetched once (820 MB; Java 24, Maven), asks the service about users with different rights
	$(PY) -m pytest -q -rs tests/real_trino

test-spark: $(SPARK) ## the audit lake and rewritten SQL on Spark (450 MB, fetched once; Java 17 or 21, a jar of Maven Central)
	$(PY) -m pytest -q -m spark tests/lake/test_tables.py # fetches the jar, before several processes do at once
	$(PYTEST) --dist worksteal -rs -m "spark and not spark_long" tests/lake tests/rewrite

test-spark-long: $(SPARK) ## the demo, a cluster by spark-submit, varied companies, and generated queries, on Spark
	$(PYTEST) --dist worksteal -rs -m spark_long tests/lake tests/rewrite

test-engines: DUCKDBS ?= 1.2.2 1.3.2 1.4.4 1.5.6
test-engines: SPARKS ?= pyspark==3.5.6+py4j==0.10.9.7 pyspark==4.1.4+py4j==0.10.9.9
test-engines: $(STAMP) ## barriers and masks on four minor versions of DuckDB and two of Spark (900 MB, fetched once; Java 17)
	@for version in $(DUCKDBS); do folder=$(VENV)/engines/duckdb-$$version; \
	  test -d $$folder || $(PY) -m pip install --quiet --no-deps --target $$folder duckdb==$$version || exit 1; \
	  PYTHONPATH=$$folder $(PY) -m pytest -q tests/rewrite/test_barriers.py tests/rewrite/test_hidden_values.py \
	    tests/rewrite/test_mask_kinds.py -k 'not without_barriers' || exit 1; done
	@for names in $(SPARKS); do folder=$(VENV)/engines/$${names%%+*}; \
	  test -d $$folder || $(PY) -m pip install --quiet --no-deps --target $$folder $$(echo $$names | tr + ' ') || exit 1; \
	  PYTHONPATH=$$folder $(PY) -m pytest -q -m "spark and not spark_long" tests/rewrite/test_hidden_values_on_spark.py \
	    tests/rewrite/test_mask_kinds_on_spark.py || exit 1; done

test-judges: export TEST_JUDGE_SECONDS := $(or $(SECONDS),3600)
test-judges: export TEST_JUDGE_SEED := $(or $(SEED),7)
test-judges: $(SPARK) ## SECONDS (3600) for each judge: the parsers of four engines, and answers on hidden rows; SEED=8 for other statements
	$(PY) -m pytest -q --timeout 86400 tests/rewrite/test_judge.py
	$(PY) -m pytest -q -rs tests/rewrite/test_engine_judges.py tests/real_trino/test_parser_judge.py
	$(PY) -m pytest -q --timeout 86400 -m long tests/rewrite/test_hidden_values.py

chaos: $(STAMP) ## services on one database, written to and killed for SECONDS (60); then a Redis that fails in every way
	TEST_CHAOS_SECONDS=$(or $(SECONDS),60) $(PY) -m pytest -q -s --timeout 3600 tests/store/test_convergence.py -k whoever_writes_and_dies
	TEST_CHAOS_SECONDS=$(or $(SECONDS),60) $(PY) -m pytest -q -s --timeout 3600 tests/decision/cache/test_cache_chaos.py tests/decision/cache/test_fleet_chaos.py

cases: $(STAMP) ## the case files alone, through the command line
	$(VENV)/bin/pdp test tests/cases

way: $(STAMP) ## the files that a warm check over HTTP runs through, in order; fails above a bound
	$(PY) bench/way.py

lint: $(STAMP) ## ruff, the import contracts, functions and prose, the deploy files
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(PY) docs/check_prose.py
	$(VENV)/bin/yamllint -s .pre-commit-config.yaml deploy rules tests/cases tests/real_trino tests/trino_cases tests/pages.yaml
	$(VENV)/bin/hadolint deploy/Dockerfile
	$(VENV)/bin/kubernetes-validate --strict --quiet deploy/sidecar.yaml

fmt: $(STAMP) ## format
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

type: $(STAMP) ## mypy strict
	$(VENV)/bin/mypy

bench: $(STAMP) ## beside OPA, as ratios next to those of docs/performance.md; ARGS="--quick single" for a part
	$(PY) bench/side_by_side.py $(ARGS)

bench-trino: $(STAMP) ## a real Trino over 1,000 tables: with the service, with an empty policy server, with none
	$(PY) bench/real_trino.py $(ARGS)

ifdef HOSTILE
soak: $(STAMP)
	TEST_HOSTILE_SECONDS=$(or $(SECONDS),3600) $(PY) -m pytest -q -s tests/surfaces/test_hostile_clients.py
else
soak: $(STAMP) ## full rate for SECONDS (600): memory, failures, latency, audit; KILL=20 kills a worker every 20 s; HOSTILE=1: an hour of hostile clients
	$(PY) bench/soak.py $(or $(SECONDS),600) $(if $(KILL),--kill-every $(KILL)) $(ARGS)
endif

bench-audit: $(STAMP) ## throughput with each durability of the audit, beside no audit
	$(PY) bench/audit.py $(ARGS)

bench-cache: $(STAMP) ## break-even of the cache: warm and cold, in this process and in Redis, beside no cache
	$(PY) bench/cache.py $(ARGS)

bench-cedar: $(STAMP) ## Cedar policies through the service beside bare cedarpy, on the same 1,000 requests
	$(PY) bench/cedar.py $(ARGS)

bench-dialects: $(STAMP) ## AuthZEN and Lakekeeper's API beside native checks, Polaris beside OPA; fails above a goal
	$(PY) bench/dialects.py $(ARGS)

bench-engines: $(STAMP) ## scopes and allow_all beside grants, per check
	$(PY) bench/engines.py

bench-pipeline: $(SPARK) ## ingest into the lake beside a plain Spark job, and for ten times the records; ARGS="--records 300000 --times 1"
	$(PY) bench/pipeline.py $(ARGS)

bench-reload: $(STAMP) ## answers during reloads beside a quiet run, with 1,000 and 10,000 rules; ARGS="--kind cedar"
	$(PY) bench/reload.py $(ARGS)

bench-replay: $(SPARK) ## replay of a million checks beside a hand-written lambda, and of ten million; ARGS="--checks 100000"
	$(PY) bench/pipeline_replay.py $(ARGS)

bench-rewrite: $(STAMP) ## rewriting of SQL beside parsing and generating with sqlglot, with few and with 10,000 policies
	$(PY) bench/rewrite.py

bench-start: $(STAMP) ## start of the example: processor time, memory, first requests, and imports by package
	$(PY) bench/start.py $(ARGS)

bench-workers: $(STAMP) ## throughput of two workers beside one
	$(PY) bench/workers.py $(ARGS)

bench-more: $(STAMP) ## views, convergence, a million grants, and OpenFGA
	$(PY) bench/views.py
	$(PY) bench/convergence.py
	$(PY) bench/million.py
	$(PY) bench/openfga.py

protos: $(STAMP) ## generate the messages of pdp/surfaces/wire from protos/
	$(PY) -m grpc_tools.protoc -Ipdp/surfaces/wire=protos/pdp/v1 --python_out=. --pyi_out=. \
	  pdp/surfaces/wire/decision.proto

docs: $(STAMP) ## generate the reference pages
	$(PY) docs/generate.py

PART := MAKEFLAGS= $(MAKE_COMMAND) --no-print-directory $(MAKEOVERRIDES)

# a target with its seconds
timed-%:
	@begin=$$(date +%s); $(PART) $*; status=$$?; echo "$* took $$(($$(date +%s) - begin)) s"; exit $$status

# `make test` plays all generated examples there
check: export TEST_EXAMPLES := all
check: $(STAMP) ## what CI runs: lint, type, test, test-spark and test-trino, with the seconds of each
	@$(PART) timed-lint timed-type timed-test timed-test-spark timed-test-trino

# the examples were played, so `make test-slow` plays none of them again
check-all: SLOW := long
check-all: check test-slow ## everything
