# make demo   set everything up and prove the fixes on two real releases
# make test   set everything up and run all tests, proofs where verdicts change, and a quick torture
# make update judge the engine releases that the ledgers do not know yet
# make torture try attnfix under wrong sources, faults, load and foreign patchers, and write the table of docs/safety.md
# make matrix run every fix on every published release (most of an hour; goes on where it stopped) and write docs/support.*
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint ledger update matrix torture clean

demo: $(VENV)/.ready
	@$(BIN)/attnfix prove --engine sglang==0.5.9 --engine vllm==0.25.1

test: $(VENV)/.ready lint
	$(BIN)/python scripts/run_tests.py

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/python scripts/generate.py --check

matrix: $(VENV)/.ready
	$(BIN)/python scripts/matrix.py
	$(BIN)/python scripts/generate.py

torture: $(VENV)/.ready
	$(BIN)/python scripts/run_torture.py
	$(BIN)/python scripts/generate.py

ledger: $(VENV)/.ready
	$(BIN)/python scripts/ledger.py
	$(BIN)/python scripts/generate.py

update: $(VENV)/.ready
	$(BIN)/python scripts/ledger.py --new
	$(BIN)/python scripts/generate.py

# torch first and by itself: on a machine whose index offers a CPU build under this version, nothing larger is fetched.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/cpu.txt
SOURCES := $(wildcard kernels/csrc/* kernels/build.py scripts/build_backend.py attnfix/attnfix.pth)

$(VENV)/.ready: pyproject.toml requirements/cpu.txt requirements/dev.txt $(SOURCES)
	@echo "setting up $(VENV): torch, what the engines import, attnfix with its kernels (about two minutes)"
	@$(PYTHON) -m venv $(VENV)
	@echo "  torch" && $(PIP) $(TORCH_FLAGS) torch
	@echo "  tools" && $(PIP) -r requirements/dev.txt
	@echo "  attnfix[cpu]" && $(PIP) --no-build-isolation -e ".[cpu]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info kernels/compiled
