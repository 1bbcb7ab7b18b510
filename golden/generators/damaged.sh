. "$(dirname "$0")/common.sh"
begin damaged 2013; disk 1 96M; POOL=gdamaged; STATE="importable, with unreadable data: ranges were overwritten"
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gdamaged /dev/loop0
zfs create -o compression=off -o recordsize=128K gdamaged/raw; for i in $(seq 12); do $G put rand $i 1500001 /p/raw/f$i; done; $G many /p/raw m text 300 100 9000; $G tree 1 /p/t -1
zfs snapshot -r gdamaged@s; zpool sync gdamaged; zpool export gdamaged
G
python3 - "$W/img/disk0.img" <<'P'
import sys, hashlib
f = open(sys.argv[1], 'r+b')
for at in (8, 10, 13, 17):
    f.seek(at << 20); f.write(b''.join(hashlib.sha512(b'hurt%d' % i).digest() for i in range(4096)))
P
guest <<'G'
must zpool import -N -f -o readonly=on "${DEVS[@]}" gdamaged; collect_imported gdamaged; zpool status -v gdamaged > $O/status-after-reading.txt; zpool export gdamaged
G
EXTRA=("$W/share/out/status-after-reading.txt"); ZDBARGS=-bcc
finish <<'R'
One disk, ashift=12, OpenZFS 2.3.2; four ranges of 256 KiB at 8, 10, 13 and 17 MiB of the image were overwritten after export. Manifests say which ranges of which files cannot be read (EIO). Generator: generators/damaged.sh.
R
