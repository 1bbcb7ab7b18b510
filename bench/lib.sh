# Shared by the benchmarks: locations, and the median of repeated runs.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/.." && pwd)
shared=${CENOTE_SHARED:-$root/../shared}
pools=${CENOTE_BENCH_POOLS:-/tmp/cenote-bench}
runs=${RUNS:-5}
cenote=${CENOTE:-$root/target/release/cenote}
[ -x "$cenote" ] || (cd "$root" && cargo build --release -p cenote-cli)

# seconds COMMAND...: wall time of one run in seconds; discards its output, reports a failure
seconds() {
  local start end
  start=$(date +%s%N)
  if ! "$@" > /dev/null 2>/tmp/cenote-bench.err; then
    echo "failed: $*" >&2; cat /tmp/cenote-bench.err >&2; return 1
  fi
  end=$(date +%s%N)
  echo "$start $end" | awk '{printf "%.3f\n", ($2-$1)/1e9}'
}

# middle: the median of the numbers in its input, one per line
middle() { sort -n | awk '{a[NR]=$1} END {print a[int((NR+1)/2)]}'; }

# median COMMAND...: median of $runs runs, after one run to warm the caches
median() {
  local i
  seconds "$@" > /dev/null
  for ((i = 0; i < runs; i++)); do seconds "$@"; done | middle
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.1f", a/b}'; }
machine() {
  local cpu; cpu=$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs)
  echo "machine: $(nproc) cores, $cpu, load $(cut -d' ' -f1 /proc/loadavg), $(uname -r)," \
    "median of $runs warm runs"
}

# sound FOLDER POOL: if `zdb` is installed, it must find every checksum right and no block leaked.
sound() {
  command -v zdb > /dev/null || return 0
  local found
  if ! found=$(zdb -e -p "$1" -bcc "$2" 2>&1) || [[ $found != *'No leaks'* ]]; then
    tail -5 <<< "$found" >&2; echo "zdb finds errors in $2 in $1" >&2; return 1
  fi
}
