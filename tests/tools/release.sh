#!/usr/bin/env bash
# release.sh BIN TOOLS PYTHON...: builds the wheel and the sdist in dist/ and tries both outside of the checkout.
# BIN: bin/ of the environment that tests; TOOLS: bin/ of the one with hadolint and uv. `make release` calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=$PWD/$1 tools=$PWD/$2
shift 2
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
step() { echo "release: $* (${SECONDS} s)"; }
# Nothing of the checkout may be imported by accident.
unset PYTHONPATH

step "lint the Dockerfiles"
"$tools/hadolint" Dockerfile.*

step "build dist/"
rm -rf dist
"$bin/python" -m hatchling build -d dist > "$elsewhere/log" 2>&1 || { cat "$elsewhere/log"; exit 1; }
wheel=$(echo "$PWD"/dist/*.whl)

step "the sdist builds the same wheel, and carries what its tests read"
tar -xzf dist/*.tar.gz -C "$elsewhere"
(
  cd "$elsewhere"/seedrl-*/
  "$bin/python" -m hatchling build -t wheel -d "$elsewhere/again" > "$elsewhere/log" 2>&1 ||
    { cat "$elsewhere/log"; exit 1; }
  cmp "$wheel" "$elsewhere"/again/*.whl
  # All test files are imported, and those run that read documents and configurations.
  "$bin/python" -m pytest -q -n 0 -k "architecture or test_documented_commands or test_packaging"
)

step "each extra resolves"
extras=$("$bin/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"])')
# Mostly waiting for the index.
printf '%s\n' $extras | xargs -P 4 -I EXTRA \
  "$tools/uv" pip compile --quiet --universal --python-version 3.11 --extra EXTRA --output-file "$elsewhere/EXTRA.txt" pyproject.toml

# The lock's versions without its hashes, which would be asked of the wheel too.
sed -n 's/^\([A-Za-z0-9].*\) \\$/\1/p' requirements.lock > "$elsewhere/constraints.txt"
for python in "$@"; do
  step "install the wheel for $("$python" --version), and train"
  clean=$elsewhere/$(basename "$python")
  "$python" -m venv --without-pip "$clean"
  "$tools/uv" pip install --quiet --python "$clean/bin/python" --constraint "$elsewhere/constraints.txt" "$wheel[learner]"
  (
    cd "$elsewhere"
    "$clean/bin/seedrl" train cartpole_r2d2 --learning.total-steps 4000 --evaluation.target-return None --workdir "$clean/run" 2>&1 | tail -n 3
    test -d "$clean/run/checkpoints"
  )
done
step "dist/ is ready: $(cd dist && echo *)"
