# Two commands matter: `make run` and `make test`. Both make their own environment in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(wildcard csrc/*.c csrc/*.h pyx/*.pyx pyx/*.pxd)
# csrc/*.py make C from these.
SOURCES += $(wildcard csrc/*.py net/wire/*.py net/wire/headers/*.py engine/types.py)
# More than two cores: much of the tests' time is waiting for processes and their timers.
WORKERS ?= 5
# Stories of several processes each, with limits of time.
LONG_WORKERS ?= 4
# Clients of other processes wait half of the time.
INTEROP_WORKERS ?= 2
ARGS ?=
SUITE ?= store
SEEDS ?= 1000
SEED ?=
FIRST ?= 0
MINUTES ?= 10
ROUNDS ?= 120
ROOM ?= engine/log
# With I/O threads: requests of all kinds, TLS, gRPC, long polls, a broker's death, replicas.
THREADED ?= tests/integration/grpc $(addprefix tests/integration/,$(THREADED_FILES))
THREADED_FILES := $(addprefix broker/test_,broker_node.py broker_crash.py container.py metadata.py metrics.py reopening.py) \
	$(addprefix client/test_,producer.py consumer.py pull_consumer.py restart.py transactions.py) cli/test_tls.py
# Whatever PYTHONDONTWRITEBYTECODE says: without bytecode each start compiles all sources. Rooms are
# links, which are followed only where they are named, with a slash.
BYTECODE = $(BIN)/python -m compileall -q src/turbopump src/turbopump/*/

# pytest rewrites the asserts of each test file: done here by two processes and kept, not by each
# worker for itself, which took as long as a tenth of all tests.
REWRITE = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -qq

# `make` alone prints this: each target with what stands behind its two number signs.
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: help run test long sim transcripts chaos fuzz attacks threads lowest mutation lint types bench versus asan tsan interop rebalance clean

run: $(VENV)/.run ## start a name server and a broker, and print where to connect (ARGS='--brokers 3')
	@$(BYTECODE)
	$(BIN)/turbopump up $(ARGS)

# Without restarts: xdist waits for ever where a worker ends while few tests are left.
test: $(VENV)/.dev ## all tests but those of `make long`, on WORKERS=5 (ARGS='-k name': some of them)
	@$(BYTECODE)
	@$(REWRITE) tests/unit >/dev/null 2>&1 & \
	$(REWRITE) tests --ignore=tests/unit >/dev/null 2>&1; wait
	$(BIN)/python -m pytest tests -n $(WORKERS) --max-worker-restart=0 $(ARGS)

long: $(VENV)/.dev ## the tests that take long: real processes that are killed, cut off and restarted
	@$(BYTECODE)
	$(BIN)/python -m pytest tests -m long -n $(LONG_WORKERS) --max-worker-restart=0 $(ARGS)

sim: $(VENV)/.dev ## simulations: SUITE=store|config|ha|raft|group|timers|transactions|payments|reminders|assignment|pops|acting|escapes|halves|popped|elected|poppers|ordered SEEDS=1000 FIRST=0, or SEED=n to replay one
	$(BIN)/python -m tests.sim --suite $(SUITE) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST))

transcripts: $(VENV)/.dev ## write tests/scenarios anew; review the difference
	$(BIN)/python -m tests.scenarios

chaos: $(VENV)/.dev ## real broker processes, cut links, kill -9: ROUNDS=120 FIRST=0
	$(BIN)/python -m tests.integration.ha --rounds $(ROUNDS) --first $(FIRST)

fuzz: $(VENV)/.dev ## coverage-guided fuzzing of all parsers: MINUTES=10
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(ARGS)

attacks: $(VENV)/.dev ## a broker under hostile peers: its memory and an honest client's slowest send
	$(BIN)/python -m tests.fuzz.attacks $(ARGS)

threads: $(VENV)/.dev ## tests of brokers and proxies whose connections 4 I/O threads read and write
	@$(BYTECODE)
	TURBOPUMP_TEST_IO_THREADS=4 $(BIN)/python -m pytest $(THREADED) -n $(WORKERS) --max-worker-restart=0 $(ARGS)

lowest: $(VENV)/.dev ## the commands under the lowest versions of the dependencies (needs the package index)
	$(BIN)/python -m tests.integration.cli.lowest

mutation: $(VENV)/.dev ## small faults in a room's modules, one at a time: ROOM=engine/log (ARGS='--seed 2 --number 60')
	$(BIN)/python -m pip install --quiet --group mutation
	$(BIN)/python -m tests.mutation --room $(ROOM) $(ARGS)

lint: $(VENV)/.dev ## ruff, and the arrows between the rooms
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy -p turbopump && $(BIN)/mypy --explicit-package-bases bench interop csrc

bench: $(VENV)/.dev ## benchmarks of the engine against a C loop of the same run
	$(BIN)/python -m pytest bench --benchmark-only $(ARGS)

versus: $(VENV)/.dev ## RocketMQ and this broker under the same load (needs Java 17)
	$(BIN)/python -m bench.versus $(ARGS)

asan: $(VENV)/.dev ## the kernels under the address and undefined-behaviour sanitizers
	$(BIN)/python -m tests.asan

tsan: $(VENV)/.dev ## I/O threads under the thread sanitizer, for 20 s (ARGS='--planted': faults that it must find)
	$(BIN)/python -m tests.tsan $(ARGS)

interop: $(VENV)/.dev ## Apache's clients of all languages, mqadmin and brokers (needs Java 17, Maven, Go, Rust and Node.js)
	$(BIN)/python -m pytest interop -n $(INTEROP_WORKERS) --max-worker-restart=0 --dist loadfile $(ARGS)

rebalance: $(VENV)/.dev ## chaos evaluation of rebalancing, RocketMQ and ours (needs Java 17, Maven and Go; ARGS='--page docs/EVALUATION.md' writes its tables)
	$(BIN)/python -m interop.rebalance_chaos $(ARGS)

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

clean: ## remove environment and builds
	rm -rf $(VENV) build pyx/*.so *.egg-info src/*.egg-info
