# Shared by `crash` and `power`: the pool `crash` in $work/disks, mounted at $mnt under the load of fsynced.py.
# shellcheck source=../lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../lib.sh"
load=$top/proof/mount/fsynced.py
mnt=$work/mnt; mkdir -p "$mnt" "$work/disks" "$work/notes"

# $! is the program itself.
mounts() {
  local i
  "$program" --disks "$work/disks" mount crash "$mnt" >> "$work/log" 2>&1 < /dev/null &
  pid=$!
  for ((i = 0; i < 600; i++)); do
    ! mountpoint -q "$mnt" || return 0
    kill -0 "$pid" 2> /dev/null || break
    sleep 0.05
  done
  tail -3 "$work/log"; fail "the pool can't be mounted"
}

# Mounts, checks all promises, and ends the mount: ROUND.
promises=0
checks() {
  local kept
  mounts
  kept=$(timeout 300 python3 "$load" check "$mnt" "$work/notes") || fail "round $1: a promise was broken"
  promises=$((promises + kept))
  umount "$mnt"; wait "$pid" || fail "round $1: the mount ended with $?"
}

# Every block is read, and none leaks: ROUND.
is_content() {
  zdb_is_content "$work/disks" crash || { tail -5 "$work/zdb.txt"; fail "round $1: zdb"; }
  say "$1 rounds, $promises promises kept, no leaks"
}
