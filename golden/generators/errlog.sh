. "$(dirname "$0")/common.sh"
begin errlog 2105; disk 1 80M; POOL=gerrlog; STATE="importable, with unreadable data that a scrub found"
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gerrlog /dev/loop0
zfs create -o compression=off -o recordsize=32K gerrlog/raw; $G put text 1 500001 /p/raw/kept; $G put text 2 500001 /p/raw/deleted; mkdir /p/raw/dir; $G put text 3 500001 "/p/raw/dir/renamed later"; $G many /p/raw m text 40 100 9000; zfs snapshot gerrlog/raw@one; $G put text 8 300000 /p/raw/after; zfs snapshot gerrlog/raw@two; zfs clone gerrlog/raw@one gerrlog/clone
rm /p/raw/deleted; mv "/p/raw/dir/renamed later" /p/raw/new; $G pw text 9 200000 100000 /p/clone/kept; zpool sync gerrlog; zpool export gerrlog
G
python3 - "$W/img/disk0.img" <<'P'
import sys, hashlib
# overwrites some of the 32 KiB pieces whose tags say that they are content of files
junk = b''.join(hashlib.sha512(b'hurt%d' % i).digest() for i in range(256))
f = open(sys.argv[1], 'r+b'); f.seek(0, 2); n = 0
for at in range(5 << 20, f.tell() - (1 << 20), 16384):
    f.seek(at); b = f.read(16384)
    if len({b[i:i + 16] for i in range(0, 16384, 256)}) > 50:
        n += 1
        if n % 13 == 3: f.seek(at); f.write(junk)
print(n, 'pieces')
P
guest <<'G'
must zpool import -f -N "${DEVS[@]}" gerrlog; zpool scrub -w gerrlog; zpool status -v gerrlog | tee $O/status-after-scrub.txt; zpool export gerrlog
must zpool import -N -f -o readonly=on "${DEVS[@]}" gerrlog; collect_imported gerrlog; zpool export gerrlog
G
EXTRA=("$W/share/out/status-after-scrub.txt")
finish <<'R'
One disk, ashift=12, OpenZFS 2.3.2; pieces of the image were overwritten after export and a scrub filled the error log (head_errlog). status-after-scrub.txt is what the module listed then; status.txt is from the read-only import, which lists live datasets only. Generator: generators/errlog.sh.
R
