#!/bin/bash
# tools/fuzz.sh COMMAND: libFuzzer over input from peers and users. Needs the preset asan (clang).
#
#   run [JOBS]     every target for FUZZ_RUNS inputs or FUZZ_SECONDS, whichever ends first; FUZZ_TARGETS names some
#   merge          adds inputs of build/fuzz-corpus that increase coverage to tests/fuzz/corpus, smallest first
#   repeat FILE... runs inputs again; their folder or FUZZ_TARGETS says with which target
#
# New inputs that cover more go to build/fuzz-corpus/TARGET, inputs that fail to build/fuzz-failures/TARGET-*.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${FUZZ_RUNS:-50000}
seconds=${FUZZ_SECONDS:-20}
bin=$PWD/build/asan/fuzz
corpus=$PWD/tests/fuzz/corpus
found=$PWD/build/fuzz-corpus
failures=$PWD/build/fuzz-failures

# The targets refuse tensors of more than 16 MB (fuzz_input.cc); anything of 512 MB ends the program.
# gRPC, protobuf and abseil are Debian's, built without the sanitizer's container annotations.
export ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=512:detect_container_overflow=0:strict_string_checks=1:quarantine_size_mb=64
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
limits=(-rss_limit_mb=2048 -timeout=20 -max_len=8192)

if [ -n "${FUZZ_TARGETS:-}" ]; then read -ra targets <<<"$FUZZ_TARGETS"; else
  mapfile -t targets < <(cd "$corpus" && printf '%s\n' *)
fi

# fuzz TARGET: its last lines show the number of inputs, the speed and the coverage.
fuzz() {
  local target=$1 log=$PWD/build/fuzz-logs/$1.log status=0
  local leaks=()
  # Their cluster lives on from input to input: leaks are looked for at the end only.
  case $target in *_service) leaks=(-detect_leaks=0) ;; esac
  # Files that a graph writes without a path must not end up here.
  mkdir -p "$found/$target" "$failures" build/fuzz-logs build/fuzz-scratch
  env -C build/fuzz-scratch "$bin/${target}_fuzz" "${limits[@]}" "${leaks[@]}" -runs="$runs" -max_total_time="$seconds" -print_final_stats=1 \
    -artifact_prefix="$failures/$target-" "$found/$target" "$corpus/$target" >"$log" 2>&1 || status=$?
  local covered executed rate
  covered=$(grep -oE 'cov: [0-9]+ ft: [0-9]+ corp: [0-9]+' "$log" | tail -1 || true)
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  rate=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  printf '%-22s %8s inputs %7s/s  %s  %s\n' "$target" "${executed:-?}" "${rate:-?}" "$covered" \
    "$([ $status = 0 ] && echo ok || echo "FAILED, see $log")"
  if [ $status != 0 ]; then tail -n 60 "$log"; fi
  return $status
}

case ${1:-} in
  run)
    jobs=${2:-$(nproc)}
    echo "fuzz: $runs inputs or $seconds s for each of: ${targets[*]}"
    export -f fuzz
    export runs seconds bin corpus found failures
    export limits_text="${limits[*]}"
    printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'read -ra limits <<<"$limits_text"; fuzz {}'
    ;;
  merge)
    for target in "${targets[@]}"; do
      [ -d "$found/$target" ] || continue
      echo "fuzz: merging $found/$target into $corpus/$target"
      "$bin/${target}_fuzz" "${limits[@]}" -merge=1 "$corpus/$target" "$found/$target" 2>&1 | grep -E 'MERGE-OUTER: [0-9]+ new' || true
    done
    du -sh "$corpus"
    ;;
  repeat)
    shift
    for file in "$@"; do
      target=${FUZZ_TARGETS:-$(basename "$(dirname "$file")")}
      "$bin/${target}_fuzz" "${limits[@]}" "$file"
    done
    ;;
  *)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
