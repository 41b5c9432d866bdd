#!/bin/bash
# tools/test_sanitizers.sh [JOBS]: the C++ tests under ASAN+UBSAN, those with many threads under TSAN.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${1:-$(nproc)}

# Layers in which only our own code uses threads: TSAN does not see packaged libraries. `links` is the part of
# transport without gRPC.
threaded_layers=(base params runtime collective task worker master client links)

# Debian's libraries are built without the sanitizer's container annotations.
export ASAN_OPTIONS=detect_container_overflow=0:detect_stack_use_after_return=1:strict_string_checks=1
export LSAN_OPTIONS=suppressions=$PWD/tools/lsan_suppressions.txt:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan_suppressions.txt
# Messages with maps: protobuf lays them out differently under TSAN than in Debian's library.
without_protobuf='-TraceProto*:*ErrorsKeepCodeTextAndPayloads:SessionFunctions*:*TracesAndTransfersAreRecorded*:GraphPiece*'

# TSAN of g++ 12 does not start where the kernel randomises addresses over many bits.
fixed_addresses=()
if setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi

echo "test-sanitizers: building the C++ tests with ASAN and UBSAN"
cmake --preset asan >/dev/null
cmake --build --preset asan -j "$jobs" --target muster_tests
echo "test-sanitizers: building the tests of ${threaded_layers[*]} with TSAN"
cmake --preset tsan >/dev/null
cmake --build --preset tsan -j "$jobs" --target "${threaded_layers[@]/%/_test}"

echo "test-sanitizers: TSAN"
pattern="^($(IFS='|'; echo "${threaded_layers[*]}"))\$"
GTEST_FILTER=$without_protobuf "${fixed_addresses[@]}" ctest --test-dir build/tsan -R "$pattern" --output-on-failure --no-tests=error
echo "test-sanitizers: ASAN and UBSAN"
ctest --test-dir build/asan -L unit -j "$jobs" --output-on-failure --no-tests=error
