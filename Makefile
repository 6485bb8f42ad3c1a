PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS_READY := .venv/.docs-ready
BROWSER_READY := .venv/.browser-ready
SITE := docs/_build/html

# Processes that run tests at the same time.
JOBS ?= 2
MINUTES ?= 5

.PHONY: help demo test machines lint docs browser mutants soak bench clean

help:
	@echo "make demo    denoise a photograph, draw what was learned into demo/"
	@echo "make test    run the tests"
	@echo "make machines run a part of the tests as other processors would"
	@echo "make lint    check style and types"
	@echo "make docs    build the site into $(SITE)"
	@echo "make browser test explorer and site in Chromium, if there is one"
	@echo "make mutants break the package on purpose: a test must notice each time"
	@echo "make soak    random tests for MINUTES=5, or as long as you like"
	@echo "make bench   measure speed and quality into benchmarks/results/, ONLY='pass noise' for some"
	@echo "make clean   remove everything that make made, .venv included"

# Set up once, and again when the dependencies may have changed.
$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]'
	touch $@

demo: $(READY)
	$(BIN)/kappaform demo

# One thread of BLAS in each process: more of them wait for each other, and cost up to ten times
# as much. Tests that are about threads set their number. Bytecode is written: pytest rewrites every
# test module, which takes as long as to collect the tests.
test: $(READY)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

machines: $(READY)
	$(BIN)/python tests/machines.py

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(DOCS_READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

# Warnings are errors; then every link of the site must lead somewhere.
docs: $(DOCS_READY)
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs $(SITE)
	$(BIN)/python docs/check_links.py $(SITE)
	@echo "open $(SITE)/index.html"

$(BROWSER_READY): pyproject.toml $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[browser]'
	touch $@

browser: $(BROWSER_READY)
	$(BIN)/python -m pytest tests/browser

mutants: $(READY)
	$(BIN)/python tests/mutants.py

soak: $(READY)
	$(BIN)/python tests/soak.py --minutes $(MINUTES)

# JOBS counts for what is not a time, of which several are measured at once; times are taken alone.
bench: $(READY)
	$(BIN)/python benchmarks/run.py --jobs $(JOBS) $(if $(BM3D),--bm3d) $(ONLY)

clean:
	rm -rf .venv build dist demo .hypothesis .pytest_cache .ruff_cache .mypy_cache
	rm -rf docs/_build docs/generated docs/reference/generated docs/tutorials docs/sg_execution_times.rst
	find src tests benchmarks examples docs -name __pycache__ -prune -exec rm -rf {} +
