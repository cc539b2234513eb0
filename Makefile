# Each target sets up what it needs: `make bench` and `make test` work on a fresh clone that has Python 3.11+ and make.
# Paths are relative and programs run as `.venv/bin/python -m ...`, so that a space in this folder's path does no harm.

ARGS ?=
BASE ?= origin/main
DOCS ?= build/docs
VENV_PYTHON := .venv/bin/python
RUN := $(VENV_PYTHON) -m

.PHONY: help bench bench-full test test-long test-newest test-lowest check check-dist gate site docs lint format lock dist clean FORCE
.NOTPARALLEL:
.DELETE_ON_ERROR:

help:
	@echo 'make bench        measure CartPole beside gymnax (under 3 minutes), print the table, write the CSV and the plot'
	@echo 'make bench-full   measure every size and compare the results with their targets'
	@echo 'make test         run the tests, except the longest'
	@echo 'make test-long    run all tests: storms of kills, browsers, older commits, other libraries that are installed'
	@echo 'make test-newest  run the same tests with the newest versions of every package; test-lowest: with the lowest'
	@echo 'make check        lint, then the fast tests: run it before each commit'
	@echo 'make gate         compare this tree with BASE (default origin/main): slower, more memory, slower to compile?'
	@echo '                  make fails with 2 whatever the gate finds; scripts call `.venv/bin/python -m perfgate --base REF`'
	@echo 'make site         build the pages of results in site/, with build/docs if it is there'
	@echo 'make docs         build the documentation in build/docs (DOCS=folder: elsewhere); the first time it trains agents to film them'
	@echo 'make lint         check style, types and who imports whom'
	@echo 'make format       format the code'
	@echo 'make lock         lock new dependencies in constraints.txt (ARGS=--upgrade renews all)'
	@echo 'make dist         build both packages in dist/, as a release publishes them'
	@echo 'make check-dist   build them and see whether the package index would take them (TAG=v1.2.3: as this version)'
	@echo 'make clean        remove what was installed and cached in this folder; results stay'
	@echo 'ARGS="..." is passed on: make test ARGS="-k timing", make bench ARGS="--num-envs 1000"'

bench: .venv/bench.stamp
	@$(VENV_PYTHON) benchmarks/throughput.py $(ARGS)

bench-full: .venv/bench.stamp
	@$(VENV_PYTHON) benchmarks/throughput.py --full --targets $(ARGS)

test: .venv/dev.stamp
	@$(RUN) pytest -m "not long" -n auto --dist worksteal $(ARGS)

test-long: .venv/dev.stamp
	@$(RUN) pytest -n auto --dist worksteal $(ARGS)

# Without constraints.txt, in an environment of their own: the versions that pip brings, and the lowest that we allow.
OTHER_VERSIONS = @$(RUN) uv venv --quiet --clear --python "$(or $(PYTHON),$(VENV_PYTHON))" build/$@ && \
  $(RUN) uv pip install --quiet --python build/$@/bin/python --compile-bytecode $(1) --editable '.[dev]' --editable ./ci/gate && \
  build/$@/bin/python -m pytest -m "not long" -n auto --dist worksteal $(ARGS)

test-newest: $(VENV_PYTHON)
	$(call OTHER_VERSIONS)

test-lowest: $(VENV_PYTHON)
	$(call OTHER_VERSIONS,--resolution lowest-direct)

check-dist: dist
	@test -z "$(TAG)" || $(RUN) uv run --no-project --with dist/myriad_rl-$(TAG:v%=%)-py3-none-any.whl \
	  --with dist/perfgate-$(TAG:v%=%)-py3-none-any.whl python -c 'import myriad, perfgate; print(myriad.__version__)'
	@$(RUN) uv tool run twine check --strict dist/*.whl dist/*.gz

check: lint
	@$(RUN) pytest -m "not slow and not long" -n auto --dist worksteal $(ARGS)

gate: .venv/bench.stamp
	@$(RUN) perfgate --base $(BASE) $(ARGS) || { code=$$?; \
	  echo "The gate's exit code is $$code. Make turns it into 2, so call $(RUN) perfgate in scripts." >&2; exit $$code; }

site: .venv/bench.stamp
	@$(RUN) ci.site.build $(ARGS)

docs: build/pictures.stamp
	@rm -rf docs/api  # else the page of a class that is gone would stay
	@$(RUN) sphinx --quiet --fail-on-warning --keep-going --builder html \
	  --doctree-dir build/doctrees docs $(DOCS) $(ARGS)
	@echo '$(DOCS)/index.html'

# Films of agents that are trained for them, and what the notebooks print: minutes, once.
build/pictures.stamp: .venv/dev.stamp scripts/pictures.py $(wildcard docs/notebooks/*.ipynb myriad/envs/*.py myriad/rendering/*.py)
	@$(VENV_PYTHON) scripts/pictures.py
	@mkdir -p build && touch $@

lint: .venv/dev.stamp
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) pyright
	@.venv/bin/lint-imports --no-logo

format: .venv/dev.stamp
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

# Pins with hashes and no addresses. The gpu extra stays out: its packages follow jax's version, and are only for Linux.
lock: $(VENV_PYTHON)
	@$(RUN) uv pip compile pyproject.toml ci/gate/pyproject.toml --quiet --universal --python-version 3.11 --fork-strategy fewest \
	  --generate-hashes --no-header --extra bench --extra tune --extra video --extra docs --extra dev \
	  --output-file constraints.txt $(ARGS)

dist: $(VENV_PYTHON)
	@$(RUN) uv build --quiet --out-dir dist $(ARGS)
	@$(RUN) uv build --quiet --out-dir dist $(ARGS) ci/gate
	@ls dist

clean:
	rm -rf .venv .asv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist docs/api docs/pictures
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environment --------------------------------------------------------------------------------------------------

# Compiled once here: each process that starts without bytecode would compile jax anew, for two seconds.
INSTALL = $(RUN) uv pip install --quiet --python $(VENV_PYTHON) --constraint constraints.txt --compile-bytecode --editable

.venv/bench.stamp: pyproject.toml ci/gate/pyproject.toml constraints.txt $(VENV_PYTHON)
	@echo 'Installing what the benchmarks need into .venv (once).'
	@$(INSTALL) '.[bench]' --editable ./ci/gate
	@touch $@

.venv/dev.stamp: pyproject.toml ci/gate/pyproject.toml constraints.txt $(VENV_PYTHON)
	@echo 'Installing what the tests need into .venv (once).'
	@$(INSTALL) '.[dev]' --editable ./ci/gate
	@touch $@ .venv/bench.stamp

# Only continuous integration makes it, each week: other libraries, which tests use where they are installed.
.venv/libraries.stamp: .venv/dev.stamp
	@$(INSTALL) '.[dev,brax,craftax,jumanji,navix,pgx,playground,sb3,xland]' rejax wandb
	@$(RUN) benchmarks.harness.peers install envpool rejax
	@touch $@

# `uv run` shares .venv and knows nothing of constraints.txt. After it, the pinned versions are installed again.
UNPINNED = $(shell $(RUN) uv pip freeze --quiet --python $(VENV_PYTHON) 2>/dev/null | awk -F == \
  'NR == FNR { split($$2, word, " "); pin[$$1] = word[1]; next } $$1 in pin && pin[$$1] != $$2' constraints.txt -)
ifneq ($(if $(wildcard uv.lock),$(UNPINNED)),)
.venv/dev.stamp: FORCE
.venv/bench.stamp: .venv/dev.stamp
endif

# A moved or copied folder brings along a .venv whose editable install still points at the old place: start anew.
ifneq ($(shell cat .venv/place 2>/dev/null),$(CURDIR))
$(VENV_PYTHON): FORCE
endif
# So does one that holds us under our old name, whose removal would take the command away.
ifneq ($(wildcard .venv/lib/python*/site-packages/myriad-*.dist-info),)
$(VENV_PYTHON): FORCE
endif

# The venv holds the uv that constraints.txt pins. A uv that is on PATH sets it up; else Python's own venv and pip do.
$(VENV_PYTHON):
	@rm -rf .venv
	@python=; for candidate in "$(PYTHON)" python3 python3.14 python3.13 python3.12 python3.11; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$candidate; break; \
	  fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'Myriad needs Python 3.11 or newer, and found none; make PYTHON=/path/to/python names one.' >&2; exit 1; \
	fi; \
	if uv --version >/dev/null 2>&1; then \
	  uv venv --quiet --python "$$python" .venv; pip='uv pip install --python $(VENV_PYTHON)'; \
	elif "$$python" -c 'import venv, ensurepip' 2>/dev/null; then \
	  "$$python" -m venv .venv; pip='$(RUN) pip install'; \
	else \
	  echo "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; \
	fi; \
	sed -n '/^uv==/,/[^\\]$$/p' constraints.txt > .venv/uv.txt && \
	$$pip --quiet --require-hashes --requirement .venv/uv.txt
	@pwd -P > .venv/place
