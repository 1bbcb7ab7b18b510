. "$(dirname "$0")/common.sh"
begin draidspare 2002; disk 6 72M; POOL=gdrspare; STATE="degraded: disk2 is gone, its data live on the distributed spare"
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gdrspare draid1:2d:6c:1s ${LO[@]}
$G tree 1 /p/t -2; zfs create -o compression=off gdrspare/raw; $G put text 3 900001 /p/raw/rand
must zpool offline -f gdrspare loop2; must zpool replace -w gdrspare loop2 draid1-0-0; $G put text 4 500001 /p/raw/after
zpool status gdrspare; zfs snapshot -r gdrspare@s
collect gdrspare
G
rm "$W/img/disk2.img"; OMIT=disk2
finish <<'R'
dRAID1 (draid1:2d:6c:1s), ashift=12, OpenZFS 2.3.2; disk2 failed, was rebuilt to the distributed spare draid1-0-0, and its image was left out. Generator: generators/draidspare.sh.
R
