PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup run test test-slow bench docs release soak

setup: .venv/.done

.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	touch $@
	@echo "deepsup is installed; next: source .venv/bin/activate && deepsup --help"

run: setup
	$(BIN)/deepsup compare --recipe quick --amp off --seeds 6 --methods CNN-Softmax DSN-Softmax BatchNorm --snapshots 10 --jobs 2 --out runs/compare
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

# build, check the metadata, then the README's first block with the wheel in an environment without extras
release:
	rm -rf dist build/release
	$(PYTHON) -m venv build/release/tools
	build/release/tools/bin/pip install --quiet build twine
	build/release/tools/bin/python -m build
	build/release/tools/bin/twine check --strict dist/*
	$(PYTHON) -m venv build/release/clean
	build/release/clean/bin/pip install --quiet -c constraints.txt dist/*.whl
	build/release/clean/bin/pip check
	awk '/^```/ { if (block) exit; block = /python$$/; next } block' README.md > build/release/first.py
	cd build/release && clean/bin/python first.py

soak: setup
	$(BIN)/python tests/faults/soak.py
