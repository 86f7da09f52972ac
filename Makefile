# make demo   installs what is missing, runs the main job and names the files it made
# make test   installs what is missing and runs the tests; PYTEST_ARGS='-k overlay' chooses
# make setup  installs what is missing
# make lint   style and types

PYTEST_ARGS ?=

.PHONY: demo test setup lint clean

demo: setup
	@tools/demo

test:
	@tools/setup test
	.venv/bin/python -m pytest -n auto $(PYTEST_ARGS)

setup:
	@tools/setup

lint: setup
	.venv/bin/python -m pip install --quiet -e '.[dev]'
	.venv/bin/ruff check src tests benchmarks tools/reference
	.venv/bin/python tools/reference --check
	.venv/bin/mypy

clean:
	rm -rf .venv demo
