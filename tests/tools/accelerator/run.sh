#!/usr/bin/env bash
# Tests, benchmarks and training on a machine with an accelerator and no package index:
#
#     bash tests/tools/accelerator/run.sh [FOLDER [STEPS...]]     (by default runs/accelerator, all steps)
#
# `make wheels`, on a machine with an index, fills .whl, which travels with the checkout. The machine
# itself has a Python with jax, flax, optax, orbax, chex and scipy. Each step has a time limit (LIMIT=90
# sets another, in seconds); a failed one stops no other. Logs and runs are in FOLDER; training resumes in the next call, so a machine that
# is taken away costs a minute.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
folder=$(realpath -m "${1:-runs/accelerator}")
steps=" ${*:2} "
site=$folder/site
mkdir -p "$folder/logs"
export PYTHONPATH=$PWD:$site PYTHONUNBUFFERED=1 JAX_COMPILATION_CACHE_DIR=$folder/compile_cache
train=(python3 -m learner.cli.main train)
cores=$(nproc)

step() { # NAME SECONDS COMMAND...
  local name=$1 seconds=${LIMIT:-$2} start=$SECONDS
  shift 2
  [[ $steps == "  " || $steps == *" $name "* ]] || return 0
  # SIGTERM saves a run; what has not ended half a minute later is killed.
  timeout --kill-after=30 "$seconds" "$@" >> "$folder/logs/$name.log" 2>&1
  echo "$name: exit code $? after $((SECONDS - start)) s: $(tail -n 1 "$folder/logs/$name.log")"
}

if ! test -d "$site"; then
  python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" .whl/*.whl || exit 1
  # A directory without __init__ gives way to any package `tests` that somebody has installed.
  mkdir -p "$site/tests" && echo "__path__ = ['$PWD/tests']" > "$site/tests/__init__.py"
fi
python3 -c 'import jax, flax, orbax.checkpoint as o, sys; print(sys.version.split()[0], jax.__version__, flax.__version__, o.__version__, jax.devices())'
for name in wire pipeline; do
  step "bench_$name" 120 python3 -m learner.cli.main bench "$name" --seconds 0.5 --rounds 3 --output "$folder/bench_$name.json" --force
done
for name in inference learner replay tokens; do
  step "bench_$name" 120 python3 -m tests.benchmarks "$name" --seconds 0.5 --rounds 3 --output "$folder/bench_$name.json" --force
done
for config in cartpole_r2d2 pong_ppo pong_r2d2; do
  step "$config" 300 "${train[@]}" "$config" --workdir "$folder/$config" --env-servers $((cores > 3 ? cores - 2 : 1)) --envs 64
done
step atari_r2d2 120 "${train[@]}" atari_r2d2 --workdir "$folder/atari_r2d2" --env-servers $((cores > 3 ? cores - 2 : 1))
step reverse_start 60 python3 -m learner.cli.main pretrain reverse_grpo --until-loss 0.3 --workdir "$folder/reverse_start"
step reverse_grpo 120 "${train[@]}" reverse_grpo --init-from "$folder/reverse_start" --workdir "$folder/reverse_grpo"
# In one process, and without the accelerator's matrix units in half precision.
JAX_DEFAULT_MATMUL_PRECISION=highest step tests 300 python3 -m pytest \
  -q -n 0 -m "not gate" -p no:cacheprovider tests/seedrl/rl tests/seedrl/networks \
  tests/seedrl/replay/test_buffer.py tests/seedrl/agents/test_replaying.py
# Exact sampling of tokens, at the precision that a user gets.
step tests_tokens 120 python3 -m pytest -q -n 0 -m "not gate" -p no:cacheprovider \
  tests/seedrl/networks/test_decoder.py tests/learner/acting/test_token_generator.py tests/seedrl/agents/test_grpo.py
