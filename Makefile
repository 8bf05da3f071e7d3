# make demo   set everything up and prove the fixes on two real releases
# make fleet  start three stand-in replicas and show their table
# make test   set everything up and run the tests, proofs where verdicts change, and quick robustness tests. Of slow tests it
#             runs a drawn third, and those of what changed last; TESTS_DRAWN=all runs every one
# make update judge the engine releases that the ledgers do not know yet, and list what may mend bugs in the newest ones
# make robustness try attnfix under wrong sources, faults, load and foreign patchers, and write the table of docs/safety.md
# make differential  run the newest releases stock and patched over drawn configurations, until it is stopped; goes on at the
#             next call. MINUTES=10 ends it by itself
# make site   build the site of docs/ into build/site
# make matrix run every fix on every published release (most of an hour; goes on where it stopped) and write docs/support.*
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo fleet test lint ledger update matrix robustness differential site clean

demo: $(VENV)/.ready
	@echo "fetching sglang 0.5.9 and vLLM 0.25.1 and proving every fix on them, stock and fixed: about five minutes on two cores"
	@$(BIN)/attnfix prove --engine sglang==0.5.9 --engine vllm==0.25.1

fleet: $(VENV)/.ready
	@$(BIN)/python -m scripts.serve.fleet

test: $(VENV)/.ready lint
	$(BIN)/python -m scripts.run_tests

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy compat attnfix kernels scripts
	$(BIN)/python -m scripts.pages.generate --check

matrix: $(VENV)/.ready
	$(BIN)/python -m scripts.ledger.matrix
	$(BIN)/python -m scripts.pages.generate

robustness: $(VENV)/.ready
	$(BIN)/python -m tests.robustness
	$(BIN)/python -m scripts.pages.generate

differential: $(VENV)/.ready
	$(BIN)/python -m tests.differential $(if $(MINUTES),--minutes $(MINUTES))
	$(BIN)/python -m tests.differential --evidence
	$(BIN)/python -m scripts.pages.generate

ledger: $(VENV)/.ready
	$(BIN)/python -m scripts.ledger.ledgers
	$(BIN)/python -m scripts.pages.generate

update: $(VENV)/.ready
	$(BIN)/python -m scripts.ledger.ledgers --new
	$(BIN)/python -m scripts.flags.generate
	$(BIN)/python -m scripts.pages.generate
	$(BIN)/python -m scripts.radar --newest

site: $(VENV)/.ready build/transcripts.md
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

build/transcripts.md: scripts/pages/transcripts.py $(wildcard attnfix/cli/*.py patches/*/index.json) | $(VENV)/.ready
	@echo "running the commands of the page of transcripts: two minutes"
	@$(BIN)/python -m scripts.pages.transcripts $@

# torch first and by itself: on a machine whose index offers a CPU build under this version, nothing larger is fetched.
# In a terminal pip shows what it fetches; elsewhere, as in CI, a step is one line.
PIP := $(BIN)/python -m pip install $(if $(MAKE_TERMOUT),--progress-bar on,--quiet) --disable-pip-version-check -c requirements/cpu.txt
SOURCES := $(wildcard setup.py kernels/csrc/* kernels/build.py scripts/build/*.py attnfix/bootstrap/attnfix.pth)

$(VENV)/.ready: pyproject.toml requirements/cpu.txt requirements/dev.txt $(SOURCES)
	@echo "setting up $(VENV): torch, what the engines import, attnfix with its kernels (about two minutes)"
	@$(PYTHON) -m venv $(VENV)
	@echo "  1/3 torch: the largest part, some hundred MB" && $(PIP) $(TORCH_FLAGS) torch
	@echo "  2/3 tools" && $(PIP) -r requirements/dev.txt
	@echo "  3/3 attnfix[cpu], whose kernels are compiled" && $(PIP) --no-build-isolation -e ".[cpu]"
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info kernels/compiled
