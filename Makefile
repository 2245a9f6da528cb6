PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup run test

setup: .venv/.done

.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	touch $@

run: setup
	$(BIN)/python -c "import deepsup; print(deepsup.__all__)"

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest

