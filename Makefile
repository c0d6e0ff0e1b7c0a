# What each target does is said and done in tools/make.py; it needs Python 3.11 and nothing else.
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3.14 python3) python3)
TARGETS := help all run test test-long faults-long sim sim-cluster bench bench-kafka bench-spark house lint format build jar wheel jars

.DEFAULT_GOAL := all
.PHONY: $(TARGETS) clean
$(TARGETS):
	@$(PYTHON) tools/make.py $@ $(ARGS)

clean:
	rm -rf target .venv
