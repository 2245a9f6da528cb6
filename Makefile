PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup run test test-slow bench docs soak

setup: .venv/.done

.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	touch $@
	@echo "deepsup is installed; next: source .venv/bin/activate && deepsup --help"

run: setup
	$(BIN)/deepsup compare --recipe quick --seeds 6 --methods CNN-Softmax DSN-Softmax BatchNorm --jobs 2 --out runs/compare
	$(BIN)/deepsup demo runs/compare/dsn-softmax-lr0.03-seed0 runs/compare/cnn-softmax-lr0.03-seed0 --out runs/compare/glass-box.html

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

test-slow: setup
	$(BIN)/pytest -n 2 --dist loadfile -m slow

bench: setup
	$(BIN)/deepsup bench

docs: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env docs build/docs
	@echo "open build/docs/index.html"

soak: setup
	$(BIN)/python tests/faults/soak.py
