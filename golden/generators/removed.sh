. "$(dirname "$0")/common.sh"
begin removed 2005; disk 4 72M; POOL=gremoved
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gremoved /dev/loop0 /dev/loop1 /dev/loop2
$G tree 1 /p/t -1; zfs create -o compression=off -o recordsize=1M gremoved/raw; for i in 1 2 3 4; do $G put text $i 1500001 /p/raw/f$i; done; $G many /p/raw m text 200 100 9000; zfs snapshot -r gremoved@before
must zpool remove -w gremoved loop1; $G tree 2 /p/t2 -2; rm /p/raw/f2; $G pw rand 77 300000 100000 /p/raw/f3; zfs snapshot -r gremoved@one
must zpool add -f gremoved /dev/loop3; must zpool remove -w gremoved loop0; rm -r /p/t2; $G put text 9 1200001 /p/raw/after; zpool sync gremoved
zpool status gremoved; zfs snapshot -r gremoved@two
collect gremoved
G
finish <<'R'
A stripe of three disks from which two were removed one after the other (indirect vdevs, the second mapping pointing into the first's targets), a fourth added between; disks 0 and 1 are empty now. ashift=12, OpenZFS 2.3.2. Generator: generators/removed.sh.
R
