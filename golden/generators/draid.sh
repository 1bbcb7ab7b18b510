. "$(dirname "$0")/common.sh"
begin draid 2001; disk 9 80M; POOL=gdraid
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gdraid draid2:3d:9c:1s ${LO[@]}
$G tree 1 /p/t -2
for r in 4K 16K 1M; do zfs create -o recordsize=$r -o compression=off gdraid/r$r; $G tree 2 /p/r$r/t -2; $G put text 3 250001 /p/r$r/rand; done
zfs snapshot -r gdraid@s
collect gdraid
G
finish <<'R'
dRAID2 with 3 data columns a group over 9 disks with one distributed spare (draid2:3d:9c:1s), ashift=12, OpenZFS 2.3.2. Generator: generators/draid.sh.
R
