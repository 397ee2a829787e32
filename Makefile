# Two commands: `make demo` and `make test`. Each sets up all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo-installed
AZURITE := tests/servers/azurite
GCS := tests/servers/gcs
KAFKA := tests/servers/kafka_jars
NUMBERS := docs/pictures/numbers.json

.PHONY: demo test quick check unit mutants system azurite gcs kafka bench pictures clean

demo: $(DEMO_STAMP)
	$(BIN)/lamina demo

test: check unit

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: $(STAMP) system azurite gcs kafka
	$(BIN)/python -m pytest -n auto --dist loadfile --durations=10

# While you work: lint, types, everything that needs neither Spark nor a server, and one pipeline on Spark.
quick: check
	$(BIN)/python -m pytest -n auto --dist loadfile --durations=10 tests/unit tests/golden \
	  tests/spark/test_chained_windows.py --ignore tests/unit/test_benchmarks.py

# Breaks every line that docs/promises.md names, in a scratch copy, and sees its test fail. `make test` tries a few.
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants.run

bench: $(STAMP) kafka
	$(BIN)/python benchmarks/checkpoint.py --save $(NUMBERS)
	$(BIN)/python benchmarks/wal.py --save $(NUMBERS)
	$(BIN)/python benchmarks/state.py --save $(NUMBERS)
	$(BIN)/python benchmarks/engine.py --save $(NUMBERS)
	$(BIN)/python benchmarks/cold.py --save $(NUMBERS)
	$(BIN)/python benchmarks/connectors.py --save $(NUMBERS)
	$(BIN)/python benchmarks/sql.py --save $(NUMBERS)
	$(BIN)/python benchmarks/joins.py --save $(NUMBERS)
	$(BIN)/python benchmarks/remote.py --save $(NUMBERS)
	$(BIN)/python benchmarks/console.py --save $(NUMBERS)
	$(MAKE) pictures

# The pictures of the README and of docs/; a test compares them with what these scripts draw.
pictures: $(STAMP)
	$(BIN)/python docs/pictures/epoch.py
	$(BIN)/python docs/pictures/ratios.py
	$(BIN)/python docs/pictures/milliseconds.py

define VENV_READY
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lamina needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
endef

$(STAMP): pyproject.toml
	$(VENV_READY)
	$(BIN)/python -m pip install --quiet --editable '.[dev,spark,java]'
	touch $(STAMP) $(DEMO_STAMP)

# What the demo needs, and no more: Spark, and a Java of its own if the system has none.
$(DEMO_STAMP): pyproject.toml
	$(VENV_READY)
	$(BIN)/python -m pip install --quiet --editable '.[spark,java]'
	touch $(DEMO_STAMP)

# The fault tests use strace and a loop-mounted ext4, those of a cluster network namespaces, others a MariaDB, that of the page Chromium; where
# these cannot be had they are skipped and say so.
system:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  ! { command -v strace && command -v mkfs.ext4 && command -v mount && command -v ip; } >/dev/null; then \
	  { apt-get update -qq && \
	  apt-get install -y -qq --no-install-recommends strace e2fsprogs mount iproute2; } >/dev/null \
	  || echo "strace, e2fsprogs or iproute2 cannot be installed here: some fault tests are skipped"; fi
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  ! { command -v mariadbd && command -v my_print_defaults; } >/dev/null; then \
	  { apt-get update -qq && \
	    apt-get install -y -qq --no-install-recommends mariadb-server-core mariadb-client-core; } >/dev/null \
	  || echo "MariaDB cannot be installed here: its tests are skipped"; fi
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v chromium >/dev/null; then \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null \
	  || echo "Chromium cannot be installed here: the test of the page in a browser is skipped"; fi
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! command -v promtool >/dev/null; then \
	  { aside=$$(mktemp -d) && cd "$$aside" && apt-get update -qq && apt-get download -qq prometheus && \
	    dpkg -x prometheus_*.deb . && install usr/bin/promtool /usr/local/bin/ && rm -r "$$aside"; } >/dev/null 2>&1 \
	  || echo "promtool cannot be fetched here: the alert rules are checked without it"; fi

# The Azure emulator comes from npm; where it cannot be had its tests are skipped and say so.
azurite:
	@if command -v npm >/dev/null && [ ! -x $(AZURITE)/node_modules/.bin/azurite-blob ]; then \
	  cd $(AZURITE) && npm ci --silent || echo "Azurite cannot be installed here: its tests are skipped"; fi

# The emulator of Google Cloud Storage is built by Go from its module proxy, in a minute or two.
gcs:
	@if command -v go >/dev/null && [ ! -x $(GCS)/fake-gcs-server ]; then \
	  GOBIN=$(CURDIR)/$(GCS) go install github.com/fsouza/fake-gcs-server@v1.56.1 2>/dev/null \
	  || echo "fake-gcs-server cannot be built here: its tests are skipped"; fi

# A real broker, and Spark's connector to it, from Maven Central; where they cannot be had the tests say so.
kafka:
	@for part in broker spark; do \
	  [ -d $(KAFKA)/$$part ] || ! command -v mvn >/dev/null || \
	  { mvn -B -q -f $(KAFKA)/pom.xml -P $$part dependency:copy-dependencies -DincludeScope=runtime \
	    -DoutputDirectory=$(CURDIR)/$(KAFKA)/.$$part >/dev/null && mv $(KAFKA)/.$$part $(KAFKA)/$$part; } \
	  || echo "the jars of Kafka ($$part) cannot be had here: its tests are skipped"; done

clean:
	rm -rf $(VENV) $(AZURITE)/node_modules $(GCS) $(KAFKA)/broker $(KAFKA)/spark .mypy_cache .ruff_cache .hypothesis
