# The one list of commands; CI runs the same ones.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo docs test test-all test-portable fuzz lint types bench reproduce studies published clean

# One stamp says that .venv holds what pyproject.toml and constraints.txt ask for.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python examples/quickstart.py

# The same examples on every machine; pytest alone draws new ones each time.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses=2 --hypothesis-profile=ci

# The quick tests; `make test-all` runs them and the slow ones, every test once.
test: $(VENV)/.installed
	$(PYTEST) --dist=worksteal -m "not slow"

# The slow ones share much of their work within a file.
test-all: test
	$(PYTEST) --dist=loadfile -m slow

# The quick tests as older processors and other numbers of threads run them, three times in all.
test-portable: $(VENV)/.installed
	$(BIN)/python tests/portable.py

# Drawn data, settings and files, each of which gives a result or a clear error; `make test` runs a
# few, this FUZZ_CASES new ones of every kind.
FUZZ_CASES ?= 2000
fuzz: $(VENV)/.installed
	FUZZ_CASES=$(FUZZ_CASES) OMP_NUM_THREADS=1 $(BIN)/pytest -m "slow or not slow" -s tests/fuzz

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

# The site, into site/: warnings are errors, and every link is checked.
docs: $(VENV)/.installed
	$(BIN)/python tests/docs_site.py

# Ratios in one run, on an otherwise idle machine; benchmarks/gpu.py is for a machine with a GPU.
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.cpu
	$(BIN)/python -m benchmarks.report

# The paper's figures and table anew, into a fresh folder, and which verdicts on its claims move
# against the committed rows. KEEP=1 then replaces those rows and fills the page; FRESH=folder
# continues a run that was interrupted.
FRESH := reproduced/$(shell date -u +%Y-%m-%d-%H%M%S)
reproduce: $(VENV)/.installed
	$(BIN)/python -m research study paper --output $(FRESH)
	$(BIN)/python -m research verdicts $(FRESH) $(if $(KEEP),--keep)

# The studies beyond the paper. Trials whose rows are in results/ are not run again: remove the
# rows to start over.
studies: $(VENV)/.installed
	$(BIN)/python -m research study beyond --output results
	$(BIN)/python -m research pages evidence.md

# Published numbers beside those of the same rows here; installs the peers.
published: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,peers]'
	$(BIN)/python -m research study published --output results
	$(BIN)/python -m research pages evidence.md

clean:
	rm -rf $(VENV) site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
