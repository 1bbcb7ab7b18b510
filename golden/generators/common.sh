# Shared by the generators: the helpers of ../shared/pools/generators, with our own destination.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shared=${CENOTE_SHARED:-$here/../../../shared}
[ -e "$shared/pools/generators/hostlib.sh" ] || { echo "needs ../shared (or CENOTE_SHARED)" >&2; exit 1; }
export VM="$here/../../proof/oracle/vm" WORK="${WORK:-/tmp/cenote-golden}" DEST="${DEST:-$here/../pools}"
mkdir -p "$WORK" "$DEST"
. "$shared/pools/generators/hostlib.sh"
