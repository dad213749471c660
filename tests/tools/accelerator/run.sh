#!/usr/bin/env bash
# Tests, benchmarks and training on a machine with an accelerator and no package index:
#
#     bash tests/tools/accelerator/run.sh [FOLDER]     (by default runs/accelerator)
#
# `make wheels`, on a machine with an index, fills .whl, which travels with the checkout. Each step
# has a time limit; a failed one stops no other. Logs and runs are in FOLDER; training resumes in the
# next call, so a machine that is taken away costs a minute.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
folder=$(realpath -m "${1:-runs/accelerator}")
python=$folder/venv/bin/python
mkdir -p "$folder/logs"
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 JAX_COMPILATION_CACHE_DIR=$folder/compile_cache

step() { # NAME SECONDS COMMAND...
  local name=$1 seconds=$2 start=$SECONDS
  shift 2
  # SIGTERM saves a run; what has not ended a minute later is killed.
  timeout --kill-after=60 "$seconds" "$@" >> "$folder/logs/$name.log" 2>&1
  echo "$name: exit code $? after $((SECONDS - start)) s: $(tail -n 1 "$folder/logs/$name.log")"
}

test -x "$python" || step install 240 python3 -m tests.tools.accelerator.install "$folder" .whl
# In one process: it has the accelerator's memory to itself.
XLA_FLAGS='' JAX_DEFAULT_MATMUL_PRECISION=highest JAX_PLATFORMS='' step tests 480 "$python" -m pytest \
  -q -n 0 -m "not gate" -p no:cacheprovider tests/seedrl/rl tests/seedrl/networks \
  tests/seedrl/replay/test_buffer.py tests/seedrl/agents/test_r2d2.py
for name in wire pipeline; do
  step "bench_$name" 120 "$python" -m learner.cli.main bench "$name" --seconds 0.5 --rounds 5
done
for name in replay inference learner; do
  step "bench_$name" 120 "$python" -m tests.benchmarks "$name" --seconds 0.5 --rounds 5
done
for config in pong_r2d2 atari_r2d2; do
  step "$config" 540 "$python" -m learner.cli.main train "$config" --workdir "$folder/$config" \
    --resume auto --checkpoint.interval-seconds 60
done
