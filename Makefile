.DEFAULT_GOAL := help
GO       ?= go
FUZZTIME ?= 30s
URL      ?= ws://127.0.0.1:7777/arcp
CHAOS_TIME ?= 60s
CHAOS_SEED ?= 0
SYSTEMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

# Tools are pinned here and run without being installed.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
GORELEASER  := github.com/goreleaser/goreleaser/v2@v2.15.0
CYCLONEDX   := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

# Not -trimpath: the build shares its cache with go run and go test. -v shows that a first build, which takes
# minutes, makes progress. Without the tables of debuggers the program has 53 MB instead of 76 MB.
build: ## build ./bin/arcp
	$(GO) build -v -ldflags '-s -w' -o bin/arcp ./cmd/arcp

# Without optimisations and tables for debuggers the compiler finds the same errors in half of the time.
cross: ## build all packages for each of SYSTEMS, and go vet
	@export GOFLAGS="$$GOFLAGS '-gcflags=all=-N -l -dwarf=false'"; for system in $(SYSTEMS); do \
	  echo "== go build and go vet for $$system"; export GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0; \
	  $(GO) build ./... && $(GO) vet ./... || exit 1; \
	done

demo: ## run the guided demonstration
	$(GO) run ./cmd/arcp demo

test: ## run all tests
	$(GO) test -timeout 30m ./...

short: ## run the tests that start no server process
	$(GO) test -short ./...

race: ## run all tests with the race detector, in random order
	$(GO) test -race -shuffle=on ./...

check: fmt vet modernize test ## formatting, vet, modernizers and tests

fmt: ## fail if a file is not formatted
	@out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "not formatted: $$out" >&2; exit 1; }

vet: ## go vet
	$(GO) vet ./...

modernize: ## fail if the language has a newer way to say something
	@out=$$($(GO) fix -diff ./...); test -z "$$out" || { echo "$$out"; exit 1; }

lint: staticcheck golangci vulncheck ## staticcheck, golangci-lint and govulncheck, pinned

staticcheck: ## staticcheck, pinned
	$(GO) run $(STATICCHECK) ./...

golangci: ## the linters of .golangci.yml, pinned
	$(GO) run $(GOLANGCI) run ./...

vulncheck: ## known vulnerabilities of what is imported; needs vuln.go.dev
	$(GO) run $(GOVULNCHECK) ./...

fuzz: ## run every fuzz target for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz'); do \
	    echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s $$pkg || exit 1; \
	  done; \
	done

bench: build ## Go benchmarks, then the rows of docs/performance.md
	$(GO) test -run '^$$' -bench . -benchtime 1s ./...
	./bin/arcp bench

conformance: build ## run the conformance checks against URL (token in ARCP_TOKEN)
	./bin/arcp conformance run --url $(URL)

chaos: ## load a runtime in both dialects for CHAOS_TIME while it is killed and connections are cut; the last line is the outcome
	@out=$$(mktemp) || exit 1; \
	$(GO) test -count=1 -timeout 0 -run '^TestChaos$$' ./internal/e2e -args -chaos.time=$(CHAOS_TIME) -chaos.seed=$(CHAOS_SEED) -chaos.out=$$out; \
	status=$$?; cat $$out; rm -f $$out; exit $$status

release: ## publish the release of the tag of this commit; needs GITHUB_TOKEN and docker buildx
	$(GO) install $(CYCLONEDX)
	PATH="$$PATH:$$($(GO) env GOPATH)/bin" $(GO) run $(GORELEASER) release --clean

release-check: ## build the files of a release in ./dist without publishing; without docker buildx no images
	$(GO) install $(CYCLONEDX)
	PATH="$$PATH:$$($(GO) env GOPATH)/bin" $(GO) run $(GORELEASER) release --clean --snapshot --skip=publish$$(docker buildx version >/dev/null 2>&1 || echo ,docker)

cover: ## test coverage by package
	$(GO) test -coverprofile=cover.out ./... && $(GO) tool cover -func=cover.out | tail -1

spec: ## write the generated tables of SPEC.md
	$(GO) test -run TestSpecTables ./runtime -args -update

.PHONY: help build cross demo test short race check fmt vet modernize lint staticcheck golangci vulncheck fuzz bench conformance chaos release release-check cover spec
