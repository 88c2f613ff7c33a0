# Every target says in one line what it does; `make` alone lists them.
# The two that a newcomer needs: `make demo` and `make test`. Both install what they need.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

export CGO_ENABLED ?= 1
GOTOOL := go tool -modfile=.tools/go.mod

# How long the race test mixes. PKG, where given, names the packages that `make test` takes.
RACE_SECONDS ?= 60
# What `make bench` measures on.
RIGS ?= r0 r1 r2

# How long the chaos run lasts, and what it draws from.
MINUTES ?= 10
SEED ?= $(shell date +%s)

.PHONY: help dev demo down test race cases mutants chaos bench lint fmt generate images build cluster ci setup

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

dev: ## try Slipway here and now: no cluster, a private PostgreSQL, commands run on this machine; Ctrl-C removes it all
	@CGO_ENABLED=0 go run ./e2e/setup/dev
	@mkdir -p bin
	@CGO_ENABLED=0 go build -trimpath -o bin/ ./controlplane ./controlplane/cmd/slipway
	@exec bin/controlplane dev

demo: ## bring up a local Kubernetes with Slipway in it and run one task (MARK=text, CLUSTER=current IMAGE_REGISTRY=host/path)
	@CGO_ENABLED=0 go run ./e2e/demo

down: ## remove everything that demo, test and cases started on this machine
	@CGO_ENABLED=0 go run ./e2e/demo down

setup: ## install packages, build Kubernetes from its modules (cached) and the images
	@CGO_ENABLED=0 go run ./e2e/setup

test: setup ## run every test: units, database, real API server, real node (PKG=./pkg/task/... for some)
ifdef PKG
	@go test -race -tags failpoints -timeout 30m $(PKG)
else
	@go test -race -tags failpoints -p 2 -timeout 30m $$(go list ./... | grep -v /e2e/)
	@# One package at a time: the tests of each share a cluster, and mostly wait.
	@go test -race -tags failpoints -p 1 -parallel 3 -timeout 60m ./e2e/...
endif

race: setup ## mix clients, kills, cancels and batches on one database for RACE_SECONDS (60) and count what must be zero
	@RACE_SECONDS=$(RACE_SECONDS) go test -race -tags failpoints -count=1 -timeout 30m -run '^TestRace' -v ./controlplane/internal/store | grep -vE '^(=== |--- |PASS)'

cases: setup ## replay field failures, one line each (ONLY=4,26 for some, FULL=1 with the written times)
	@go test -tags failpoints -c -o bin/cases ./e2e/cases
	@cd e2e/cases && ../../bin/cases -test.parallel 2 -test.timeout 60m

mutants: setup ## break Slipway on purpose, one rule at a time, and see a test notice (ONLY=03,14 for some)
	@go run ./e2e/mutants

chaos: setup ## break everything at random while tasks run, and let an outside checker judge (MINUTES=10, SEED=a number)
	@go test -tags failpoints -c -o bin/chaos ./e2e/chaos
	@cd e2e/chaos && MINUTES=$(MINUTES) SEED=$(SEED) ../../bin/chaos -test.timeout $$(( $(MINUTES) * 3 + 20 ))m

bench: setup ## measure against the budgets, on this machine: r0 a private PostgreSQL, r1 fake nodes, r2 a real node (RIGS=r1 for one)
	@CGO_ENABLED=0 go run ./e2e/bench $(RIGS)

images: ## build the images as archives in bin/images
	@CGO_ENABLED=0 go run ./e2e/images --out bin/images all

build: ## build the binaries into bin
	@mkdir -p bin
	@CGO_ENABLED=0 go build -trimpath -o bin/ ./controlplane ./runner ./controlplane/cmd/slipway
	@ln -sf slipway bin/kubectl-slipway

lint: ## golangci-lint, gofumpt, import table, generated files up to date
	@.ci/lint

generate: ## make the generated files anew
	@go generate ./...

fmt: ## format every Go file
	@git ls-files '*.go' | grep -v '\.gen\.go$$' | xargs $(GOTOOL) gofumpt -w

ci: lint test ## what every landing has to pass
