# make demo     install the native libraries if they are missing, then write text with the demo pair
# make test     the same, then every test
# make native   install the native libraries: MLX and mlx-c
# make race     every test under the race detector; RACE="./mlx" for some packages
# make check    vet, staticcheck, gofumpt, module files, the C interface, builds for other platforms
# make faults   known faults planted one by one: some test must fail for each
# make bench    Go benchmarks of all packages
#
# Needed: Go 1.21 or newer (it fetches the version that go.mod names), and on
# Linux pip, cargo and a C++ compiler; a missing one is named. On a Mac:
# Homebrew's mlx-c.

GO ?= go

# Some machines pin the toolchain to the installed one. Any choice of 1.27 or
# newer stays.
ifeq ($(filter go1.27% go1.28% go1.29% go1.3% go2%,$(GOTOOLCHAIN)),)
export GOTOOLCHAIN := go1.27.3+auto
endif

RACE ?= ./...

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOFUMPT := mvdan.cc/gofumpt@v0.12.0

.PHONY: demo test test-long test-rest native race faults check bench vet staticcheck format modules abi platforms go

# First a function that the demo pair has learned by heart, which a drafter
# guesses well, then one that it has never seen.
demo: native
	@mkdir -p bin
	$(GO) build -o bin/generate ./examples/generate
	@echo
	@echo "A function that the pair knows by heart: most drafts are right."
	bin/generate -compare
	@echo
	@echo "A function that it has never seen: most drafts are wrong, so few are made, and it is no less exact."
	printf '%s\n' 'Package flag. Write this Go function:' 'func (f *FlagSet) defaultUsage()' \
		'defaultUsage is the default function to print a usage message.' | bin/generate -compare -prompt-file -

# Each process has one thread for MLX, and dflash's tests take longer than all the
# others together: two processes share them.
LONG := ^(TestDistribution|TestKinds|TestReference|TestRollbackRounds|TestNoLeak|TestSeededEqualsPlain|TestPenaltiesEqualPlain)$$

test: native
	@$(MAKE) --no-print-directory -j 2 test-long test-rest

test-long: go
	$(GO) test -timeout 20m -run '$(LONG)' ./dflash

test-rest: go
	$(GO) test -timeout 20m $$($(GO) list ./... | grep -v '/dflash$$')
	$(GO) test -timeout 20m -skip '$(LONG)' ./dflash

race: native
	$(GO) test -race -timeout 40m $(RACE)

faults: native
	GODFLASH_FAULTS=1 $(GO) test -v -timeout 60m ./internal/faults

native: go
	$(GO) run ./native

bench: native
	$(GO) test -run '^$$' -bench . -benchmem ./...

check: vet staticcheck format modules abi platforms

vet: go
	$(GO) vet ./...

staticcheck: go
	$(GO) run $(STATICCHECK) ./...

format: go
	@echo "$(GO) run $(GOFUMPT) -l ."
	@files=$$($(GO) run $(GOFUMPT) -l .) || exit 1; \
	if [ -n "$$files" ]; then printf 'not formatted, run "%s -w" on them:\n%s\n' "$(GO) run $(GOFUMPT)" "$$files"; exit 1; fi

modules: go
	$(GO) mod verify
	$(GO) mod tidy -diff

# Our declarations of mlx-c against its headers, which the installation keeps.
abi: native
	$(GO) run ./native -abi

# The module builds where MLX does not run, and says so when it is used.
platforms: go
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build ./...
	CGO_ENABLED=0 GOOS=darwin GOARCH=amd64 $(GO) build ./...
	CGO_ENABLED=0 GOOS=windows GOARCH=amd64 $(GO) build ./...

go:
	@command -v $(GO) >/dev/null || { \
		echo "Go is missing: install it from https://go.dev/dl/ (1.21 or newer), or the package golang-go where it is that new" >&2; exit 1; }
	@version=$$(cd / && GOTOOLCHAIN=local $(GO) env GOVERSION); \
	case "$$version" in \
	go1.[0-9] | go1.[0-9].* | go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*) \
		echo "$$version is too old to fetch the version that go.mod names: install Go 1.21 or newer from https://go.dev/dl/" >&2; exit 1 ;; \
	esac
