#!/bin/bash
# tools/test_python.sh PYTHON: runs the Python tests in three processes at a time. Those of the package and of single ops print as
# they run; those of clusters, and those of recovery, which mostly wait, run beside them and are printed at the end.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1
mkdir -p build

pids=()
names=()
# beside NAME ARGUMENT...: pytest in the background, its output in build/test_NAME.txt.
beside() {
  names+=("$1")
  "$python" -m pytest -p no:cacheprovider "${@:2}" >"build/test_$1.txt" 2>&1 &
  pids+=($!)
}
trap 'kill "${pids[@]}" 2>/dev/null' EXIT

beside recovery tests/recovery
beside clusters tests --ignore=tests/oracle --ignore=tests/wire --ignore=tests/recovery --ignore=tests/netns --ignore=tests/soak \
  --ignore=tests/launching --ignore=tests/packaging --ignore=tests/convergence/test_mnist.py
"$python" -m pytest -p no:cacheprovider python/tests tests/oracle tests/wire
status=$?
for i in "${!pids[@]}"; do
  wait "${pids[$i]}" || status=1
  echo "test: ${names[$i]}, beside the others"
  cat "build/test_${names[$i]}.txt"
done
exit $status
