# Everything runs in .venv, which the first target that needs it makes. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 3

# A run of the tests starts hundreds of Python processes. Without its bytecode on disk each of them would compile
# every module that it imports, which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.cache/bytecode

.PHONY: help demo demo-spark test test-spark-oldest check lint bytecode compiled wheel docs bench soak mutants clean

help:
	@echo "make demo    load real flights, kill the writer, recover, read, compact; kill one of three nodes (two minutes)"
	@echo "make demo-spark    the same flights through a pipeline on Spark that is stopped and killed (some minutes)"
	@echo "make check   lint, types, import contracts and the fast tests (a minute)"
	@echo "make test    all tests, of the long ones the part that the commit chooses (a quarter of an hour at most)"
	@echo "make test-spark-oldest    the tests with Spark, with the oldest PySpark that is supported"
	@echo "make bench   measure against the peers and rewrite benchmarks/results"
	@echo "make wheel   a wheel and a source distribution in dist/, and a check that the wheel is whole"
	@echo "make docs    write docs/settings.md and docs/reference/ from the source"
	@echo "make soak    the long runs at full size"
	@echo "make mutants    small faults put into the core, of which the tests must notice each; MINUTES=10"

COMPILED := $(wildcard src/compiled/*.[ch])

$(VENV)/.base: pyproject.toml setup.py $(COMPILED)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "logstore needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-compile --upgrade pip setuptools
	rm -f src/logstore/_compiled.*so
	$(BIN)/pip install -q --no-compile -e .
	@touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/pip install -q --no-compile -e '.[test,bench,demo-spark]'
	@touch $@

$(VENV)/.demo: $(VENV)/.base
	$(BIN)/pip install -q --no-compile -e '.[demo]'
	@touch $@

$(VENV)/.demo-spark: $(VENV)/.base
	$(BIN)/pip install -q --no-compile -e '.[demo-spark]'
	@touch $@

$(VENV)/.bench: $(VENV)/.base
	$(BIN)/pip install -q --no-compile -e '.[bench]'
	@touch $@

demo: $(VENV)/.demo
	$(BIN)/python examples/flights/demo.py
	@echo; echo "Three nodes, of which the leader is killed under load (examples/three_nodes.py)"
	@$(BIN)/python examples/three_nodes.py

demo-spark: $(VENV)/.demo-spark
	$(BIN)/python examples/pipeline/run.py

# The compiled module anew, without an install; put in place in one step, for processes that have it open.
compiled:
	rm -rf build/compiled
	$(BIN)/python setup.py -q build_ext --build-lib build/compiled --build-temp build/objects
	mv build/compiled/logstore/_compiled.*so src/logstore/

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# What the processes of a run would otherwise each compile for themselves.
bytecode: $(VENV)/.test
	@mkdir -p .cache
	@$(BIN)/pytest --collect-only -m "not soak" > .cache/collected.txt || { tail -n 60 .cache/collected.txt; exit 1; }

FAST := -m "not slow and not interop and not soak"

check: lint
	$(BIN)/pytest -n $(JOBS) $(FAST) --quick

# Again in plain Python: the tests of what it does by itself, which is what the compiled module does otherwise
# (src/logstore/format), and of those who call it to encode, decode, look up, compress, walk and compact. All
# else, the threads, the locks, the files, the topics, is the same code in both.
PARTITION := writing/test_append writing/test_extend writing/test_gathering segments/test_batch_cache \
    state/test_producer_state encoding recovery/test_damage recovery/test_recovery recovery/test_recovery_runs \
    reading checking/test_verify cleaning
PLAIN := tests/format tests/fuzz $(foreach room,$(PARTITION),$(wildcard tests/partition/$(room) tests/partition/$(room).py)) \
    tests/test_build.py tests/test_docs_columns.py tests/test_docs_tables.py tests/test_same_bytes.py tests/test_topic.py

# The last lines of each run say which code it was, and which turn: see tests/conftest.py and tests/rotation.py.
DURATIONS := .cache/durations.md
test: $(VENV)/.test
	$(MAKE) -j2 lint bytecode
	$(BIN)/pytest -n $(JOBS) -m "not soak" --note-durations=$(DURATIONS)
	@cat $(DURATIONS)
	LOGSTORE_LOOPS=plain $(BIN)/pytest -n $(JOBS) $(FAST) $(PLAIN)

# A build without a compiler goes on without the compiled module; a release must not.
wheel: $(VENV)/.base
	rm -rf build dist
	$(BIN)/python -c "import setuptools.build_meta as build; build.build_sdist('dist'); build.build_wheel('dist')"
	ls dist/embedded_logstore-*-cp311-abi3-*.whl dist/embedded_logstore-*.tar.gz
	$(BIN)/python -m zipfile -l dist/embedded_logstore-*.whl | grep "logstore/_compiled.abi3.so"

docs: $(VENV)/.base
	$(BIN)/python -m tests.reference_pages

# The oldest versions that pyproject.toml allows, of what the tests with Spark run on.
OLDEST := .venv-oldest
OLDEST_VERSIONS := pyspark==4.2.0 pyarrow==18.0.0 pandas==2.2.3

$(OLDEST)/.made: pyproject.toml setup.py $(COMPILED)
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install -q --no-compile --upgrade pip setuptools
	$(OLDEST)/bin/pip install -q --no-compile -e '.[test]' $(OLDEST_VERSIONS)
	@touch $@

test-spark-oldest: $(OLDEST)/.made
	LOGSTORE_TURN=all $(OLDEST)/bin/pytest -n $(JOBS) -m "not soak and not interop" tests/spark

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.stages
	$(BIN)/python -m benchmarks.tables
	$(BIN)/python -m benchmarks.compaction
	$(BIN)/python -m benchmarks.clients
	$(BIN)/python -m benchmarks.listening
	$(BIN)/python -m benchmarks.replicas
	$(BIN)/python -m benchmarks.queues
	$(BIN)/python -m benchmarks.spark

# What guides the fuzzer is not there for every Python and machine: without it those tests are skipped.
$(VENV)/.fuzz: $(VENV)/.test
	$(BIN)/pip install -q --no-compile -e '.[fuzz]' || echo "no guided fuzzing here"
	@touch $@

# Hours. What was tried goes into docs/reliability.md; LOGSTORE_STATES=200000 makes the longest part shorter.
FIGURES := .cache/figures.jsonl
soak: $(VENV)/.fuzz
	mkdir -p .cache && rm -f $(FIGURES)
	LOGSTORE_TURN=all LOGSTORE_FIGURES=$(abspath $(FIGURES)) \
	    $(BIN)/pytest -n $(JOBS) --on-disk -m "soak or slow or interop"
	$(BIN)/python -m tests.reliability_page $(FIGURES) "make soak"

$(VENV)/.mutants: $(VENV)/.test
	$(BIN)/pip install -q --no-compile -e '.[mutants]'
	@touch $@

# Another sample with each commit. What survives is printed as a difference.
MINUTES ?= 10
mutants: $(VENV)/.mutants
	$(BIN)/python -m tests.mutants --minutes $(MINUTES)

clean:
	rm -rf $(VENV) $(OLDEST) build dist demo-output .cache
