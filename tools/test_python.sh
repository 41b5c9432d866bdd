#!/bin/bash
# tools/test_python.sh PYTHON: runs the Python tests. Those of recovery mostly wait: they run beside the others, and what
# they print comes after them.
set -uo pipefail
cd "$(dirname "$0")/.."
python=$1
printed=build/test_recovery.txt
mkdir -p build
"$python" -m pytest -p no:cacheprovider tests/recovery >"$printed" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null' EXIT
"$python" -m pytest python/tests tests --ignore=tests/recovery --ignore=tests/netns --ignore=tests/soak \
  --ignore=tests/launching --ignore=tests/packaging --ignore=tests/convergence/test_mnist.py
status=$?
wait "$beside"
recovery_status=$?
echo "test: tests/recovery, which ran beside them"
cat "$printed"
[ "$status" -eq 0 ] && [ "$recovery_status" -eq 0 ]
