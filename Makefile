# Set up, run, test and build kompute-llm. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

BIN := .venv/bin
TYPING := build/typing/kompute_llm
LAYER := build/layer.stamp
PACKAGES := cli engine kernels shaders

# The question that `make run` asks, and more options for it or for pytest.
export PROMPT ?= What is the capital of France?
ARGS ?=
# The working tree must not shadow installed packages (kernels/ is a name in use).
export PYTHONSAFEPATH := 1
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done
	@echo 'Variables: PROMPT="…" (run), ARGS="…" (options for run, test, validation and fuzz), PYTHON=…'

.PHONY: machine
machine:
	@PYTHON="$(PYTHON)" bash .ci/setup.sh

.PHONY: setup
setup: shaders layer ## install what is missing: system packages, .venv, kp, demo model; build

.PHONY: shaders
shaders: machine ## compile the shaders that changed
	@$(BIN)/python shaders/compile.py

.PHONY: layer
layer: machine ## build the C extension if it changed
	@$(MAKE) -s $(LAYER)

$(LAYER): setup.py $(wildcard engine/*.c engine/*.h)
	@$(BIN)/python setup.py -q build_ext --inplace >&2
	@touch $@

.PHONY: run
run: setup ## answer PROMPT with the demo model
	@$(BIN)/kompute-llm run --temp 0 -p "$$PROMPT" $(ARGS)

.PHONY: test
test: setup ## all tests, then those that use Vulkan under the validation layer
	@status=0; \
	$(BIN)/python -m pytest $(ARGS) || status=$$?; \
	$(MAKE) validation || status=$$?; \
	exit $$status

.PHONY: validation
validation: setup ## tests that use Vulkan, with Khronos validation: no message allowed
	@KOMPUTE_LLM_VALIDATION=1 $(BIN)/python -m pytest -m vulkan $(ARGS)

.PHONY: fuzz
fuzz: setup ## open 2,000 damaged model files: each runs or is refused in one sentence
	@PYTHONPATH=tests $(BIN)/python tests/fuzz.py $(ARGS)

.PHONY: typing
typing:
	@mkdir -p $(TYPING)
	@for name in $(PACKAGES); do ln -sfn ../../../$$name $(TYPING)/$$name; done

.PHONY: lint
lint: machine typing ## ruff and mypy --strict
	@status=0; \
	$(BIN)/ruff check . || status=$$?; \
	MYPYPATH=build/typing:tests $(BIN)/mypy --strict --explicit-package-bases \
		$(addprefix $(TYPING)/,$(PACKAGES)) tests setup.py | sed 's|^$(TYPING)/||' || status=$$?; \
	exit $$status

.PHONY: wheel
wheel: setup ## dist/kompute_llm-….whl
	@$(BIN)/python -m pip wheel -q --no-deps --no-build-isolation -w dist . && ls dist/*.whl

.PHONY: clean
clean: ## remove what was built, but not .venv and .cache
	@rm -rf build dist *.egg-info shaders/*.spv .mypy_cache .ruff_cache .pytest_cache

.PHONY: distclean
distclean: clean ## remove .venv and .cache as well
	@rm -rf .venv .cache
