# Shared by the proofs: locations, error handling, the virtual machine with the module, `zdb`.
set -euo pipefail
export LC_ALL=C
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
shared=${CENOTE_SHARED:-$top/../shared}
program=${CENOTE:-$top/target/release/cenote}
# With ORACLE=2.4, `zdb` and the other tools here are those of 2.4, like the machine's.
oracle=${ORACLE:-2.3}
[ "$oracle" != 2.4 ] || PATH=${ORACLE24:-/opt/openzfs-2.4}/sbin:$PATH
work=${WORK:-$(mktemp -d)}; mkdir -p "$work"
daemon=
stop_daemon() { [ -z "$daemon" ] || { kill "$daemon" 2> /dev/null; wait "$daemon" || true; daemon=; }; }
trap 'stop_daemon; [ -n "${WORK:-}" ] || rm -rf "$work"' EXIT
# The machine sees this folder as /share.
share=$work/share; mkdir -p "$share"

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() { say "FAILED: $*"; exit 1; }
wanted() { [[ -z ${ONLY:-} || " $ONLY " == *" $1 "* ]]; }

# Runs a script of this folder in the machine: SECONDS SCRIPT ARG... Its output goes to $work/machine.txt.
machine_options=()
machine() {
  mkdir -p "$share/tools"
  # shellcheck disable=SC2046
  cp /lib/udev/zvol_id /bin/cp $(ldd /bin/cp | grep -o '/[^ ]*') "$share/tools/"
  cp "$top/proof/$2" "$top/proof/guest.sh" "$share/"
  "$top/proof/oracle/vm" -m 3072 "${machine_options[@]}" -t "$1" "$share/$2" "${@:3}" > "$work/machine.txt" 2>&1
}

# Serves what a folder has until `stop_daemon`; commands without --disks go there: FOLDER OPTION...
serve() {
  export CENOTE_SOCKET=$work/socket
  "$program" serve -d "$@" >> "$work/serve.txt" 2>&1 < /dev/null & daemon=$!
  local _
  for _ in {1..600}; do
    [ ! -S "$CENOTE_SOCKET" ] || ! "$program" tunable > /dev/null 2>&1 || return 0
    sleep 0.05
  done
  tail -5 "$work/serve.txt"; fail "the daemon does not start"
}

# Reads every block, and checks that allocated equals referenced: FOLDER POOL. Output: $work/zdb.txt.
zdb_is_content() {
  zdb -e -p "$1" -bcc "$2" > "$work/zdb.txt" 2>&1 && grep -q "No leaks" "$work/zdb.txt"
}
