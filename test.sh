#!/usr/bin/env bash
# The one test command: format, lints, unit, property and scenario tests, end-to-end tests with real processes, and the
# JAX pair. Installs what it needs into a cache folder. Ends with the totals of all runners.
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\n== %s\n' "$*"; }

say "format"
cargo fmt --all --check

say "lints"
cargo clippy --workspace --all-targets --locked -- -D warnings

say "JAX for the training example"
if [ -z "${GANGER_JAX_PYTHON:-}" ]; then
  if command -v python3 >/dev/null && GANGER_JAX_PYTHON=$(.ci/jax-venv | tail -n 1) && [ -x "$GANGER_JAX_PYTHON" ]; then
    export GANGER_JAX_PYTHON
    echo "$("$GANGER_JAX_PYTHON" --version) with JAX"
  else
    unset GANGER_JAX_PYTHON
    echo "no JAX here: its test says that it is skipped"
  fi
fi

say "tests"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
cargo test --workspace --lib --bins --tests --locked --no-fail-fast 2>&1 | tee "$log" || status=$?

say "scenarios through the binary"
scenarios=0
if cargo run --quiet --locked -p ganger -- sim scenario scenarios/*.txt; then
  scenarios=$(ls scenarios/*.txt | wc -l)
else
  status=1
fi

# Sums of every `test result:` line above, in the form that any reader of test output knows.
awk -v scenarios="$scenarios" '
  /^test result:/ { for (i = 1; i <= NF; i++) { if ($i == "passed;") passed += $(i-1); if ($i == "failed;") failed += $(i-1); if ($i == "ignored;") skipped += $(i-1) } }
  END { printf "\n%d passed, %d failed, %d skipped\n", passed + scenarios, failed, skipped }' "$log"
exit "$status"
