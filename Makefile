# `make quickstart` runs the main job, `make test` runs every check. Both set up what they need.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    ?= runs/quickstart

.PHONY: quickstart test install clean

quickstart: $(VENV)/.installed
	@$(BIN)/olr train recipes/laptop/quickstart.yaml --run-dir $(RUN) $(if $(wildcard $(RUN)/manifest.json),--resume) \
	|| { status=$$?; [ $$status != 2 ] || echo "For a new run: make quickstart RUN=$(RUN)-2"; exit $$status; }
	$(BIN)/olr analyze $(RUN) --figure dynamics

install: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade --quiet pip
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pytest -n 2

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
