PYTHON := .venv/bin/python

.PHONY: shaders
shaders: ## compile the shaders that changed
	@$(PYTHON) shaders/compile.py
