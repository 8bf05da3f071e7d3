# make demo   set everything up and prove the fixes on two real releases
# make test   set everything up and run all tests, proofs where verdicts change, and quick robustness tests
# make update judge the engine releases that the ledgers do not know yet
# make robustness try attnfix under wrong sources, faults, load and foreign patchers, and write the table of docs/safety.md
# make matrix run every fix on every published release (most of an hour; goes on where it stopped) and write docs/support.*
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint ledger update matrix robustness clean

demo: $(VENV)/.ready
	@echo "proofs of two releases: some minutes"
	@$(BIN)/attnfix prove --engine sglang==0.5.9 --engine vllm==0.25.1

test: $(VENV)/.ready lint
	$(BIN)/python -m scripts.run_tests

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m scripts.pages.generate --check

matrix: $(VENV)/.ready
	$(BIN)/python -m scripts.ledger.matrix
	$(BIN)/python -m scripts.pages.generate

robustness: $(VENV)/.ready
	$(BIN)/python -m tests.robustness
	$(BIN)/python -m scripts.pages.generate

ledger: $(VENV)/.ready
	$(BIN)/python -m scripts.ledger.ledgers
	$(BIN)/python -m scripts.pages.generate

update: $(VENV)/.ready
	$(BIN)/python -m scripts.ledger.ledgers --new
	$(BIN)/python -m scripts.pages.generate

# torch first and by itself: on a machine whose index offers a CPU build under this version, nothing larger is fetched.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/cpu.txt
SOURCES := $(wildcard kernels/csrc/* kernels/build.py scripts/build/backend.py attnfix/bootstrap/attnfix.pth)

$(VENV)/.ready: pyproject.toml requirements/cpu.txt requirements/dev.txt $(SOURCES)
	@echo "setting up $(VENV): torch, what the engines import, attnfix with its kernels (about two minutes)"
	@$(PYTHON) -m venv $(VENV)
	@echo "  torch" && $(PIP) $(TORCH_FLAGS) torch
	@echo "  tools" && $(PIP) -r requirements/dev.txt
	@echo "  attnfix[cpu]" && $(PIP) --no-build-isolation -e ".[cpu]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info kernels/compiled
