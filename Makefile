# Two commands matter: `make run` and `make test`. Both make their own environment in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(wildcard csrc/*.c csrc/*.h pyx/*.pyx pyx/*.pxd)
WORKERS ?= 2
ARGS ?=
SUITE ?= store
SEEDS ?= 1000
SEED ?=
FIRST ?= 0
MINUTES ?= 10
ROUNDS ?= 120

.PHONY: run test sim transcripts chaos fuzz lint types bench versus asan interop clean

run: $(VENV)/.run
	$(BIN)/turbopump up $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest tests -n $(WORKERS) --dist loadgroup $(ARGS)

sim: $(VENV)/.dev
	$(BIN)/python -m tests.sim --suite $(SUITE) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST))

transcripts: $(VENV)/.dev
	$(BIN)/python -m tests.scenarios

chaos: $(VENV)/.dev
	$(BIN)/python -m tests.integration.ha --rounds $(ROUNDS) --first $(FIRST)

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/lint-imports

types: $(VENV)/.dev
	$(BIN)/mypy -p turbopump && $(BIN)/mypy --explicit-package-bases bench interop

bench: $(VENV)/.dev
	$(BIN)/python -m pytest bench --benchmark-only $(ARGS)

versus: $(VENV)/.dev
	$(BIN)/python -m bench.versus $(ARGS)

asan: $(VENV)/.dev
	$(BIN)/python -m tests.asan

interop: $(VENV)/.dev
	$(BIN)/python -m pytest interop $(ARGS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The stamps follow the native sources too: touching a kernel rebuilds it at the next command.
$(VENV)/.run: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.dev: $(VENV)/bin/python $(SOURCES)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@ $(VENV)/.run

clean:
	rm -rf $(VENV) build pyx/*.so *.egg-info src/*.egg-info
