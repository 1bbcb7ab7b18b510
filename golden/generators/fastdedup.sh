. "$(dirname "$0")/common.sh"
begin fastdedup 2008; disk 1 128M; POOL=gfdt
guest <<'G'
param zfs_bclone_enabled 1
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gfdt /dev/loop0
for c in sha256 blake3; do zfs create -o dedup=$c -o compression=off -o recordsize=16K gfdt/$c; $G put rand 5 700000 /p/$c/one; cp /p/$c/one /p/$c/two; $G pw rand 9 200000 131072 /p/$c/two; done; zpool sync gfdt
zfs create gfdt/late; zfs set dedup=sha256 gfdt/late; $G put rand 15 300000 /p/late/one; cp /p/late/one /p/late/two
zfs create gfdt/clone; $G put rand 8 900000 /p/clone/src; zpool sync gfdt; $G clone /p/clone/src /p/clone/dst; zpool sync gfdt; zfs snapshot -r gfdt@s; zpool get all gfdt | grep -E "dedup|bclone"
collect gfdt
G
finish <<'R'
One disk, ashift=12, OpenZFS 2.3.2, fast deduplication (flat entries and the DDT log). Generator: generators/fastdedup.sh.
R
