# Shared by the proofs' scripts that run in the machine.
export LC_ALL=C
modprobe zfs 2>/dev/null
# Programs that the machine lacks; its own `cp` can't share blocks.
zvol_id() { /share/tools/zvol_id "$@"; }
reflink() { LD_LIBRARY_PATH=/share/tools /share/tools/cp --reflink=always "$@"; }

status=0
wrong() { echo "WRONG $*"; status=1; }

# Makes disks of images, linked from /tmp/NAME: FOLDER. Pools made of block devices are imported only from
# block devices.
disks() {
  local image loop to=/tmp/${1##*/}
  mkdir "$to"
  for image in "$1"/*.img; do
    loop=$(losetup -f); losetup "$loop" "$image" && ln -s "$loop" "$to/${image##*/}"
  done
}
free_disks() { for link in "/tmp/${1##*/}"/*; do losetup -d "$(readlink "$link")"; done; } # FOLDER

scrub() { # POOL
  zpool scrub "$1" || return
  while zpool status "$1" | grep -q "in progress"; do sleep 0.2; done
  # The last scan may have been a resilver.
  zpool status "$1" | grep -q 'repaired 0B.* with 0 errors\|resilvered .* with 0 errors' \
    && zpool status "$1" | grep -q 'errors: No known data errors' \
    || { zpool status -v "$1"; return 1; }
}

# The device of a volume, which appears some time after the import. Without udev there are no links in
# /dev/zvol.
device() { # VOLUME
  local _ each
  for _ in $(seq 40); do
    for each in /dev/zd*; do
      case $each in *p[0-9]*) continue;; esac
      [ "$(zvol_id "$each" 2>/dev/null)" = "$1" ] && { echo "$each"; return; }
    done
    sleep 0.25
  done
  return 1
}
