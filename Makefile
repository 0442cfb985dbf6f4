# demo, test, lint, bench: each makes .venv on first use and is quick when nothing changed.
.DEFAULT_GOAL := help
PYTHON ?= python3
EXTRAS ?= build,cluster,reference,gpu,web,dev
BIN := .venv/bin
RUNTIME := .venv/.runtime
DEV := .venv/.dev

.PHONY: help demo test lint bench clean
help:
	@echo "make demo   install and run the demonstration"
	@echo "make test   install the development tools and run the tests"
	@echo "make lint   format check, lint and types"
	@echo "make bench  every benchmark that fits on two cores"

# torch first and pinned: any looser requirement pulls gigabytes of CUDA onto a machine without a GPU.
$(RUNTIME): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(DEV): $(RUNTIME)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

demo: $(RUNTIME)
	$(BIN)/kappaflow demo

test: $(DEV)
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow'

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

bench: $(DEV)
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv
