. "$(dirname "$0")/common.sh"
begin freeing 2103; disk 1 128M; POOL=gfreeing; STATE="importable: destroyed datasets are being freed"
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gfreeing /dev/loop0
param zfs_livelist_max_entries 20; param zfs_livelist_condense_zthr_pause 1; param zfs_livelist_min_percent_shared 0
zfs create -o recordsize=4K gfreeing/keep; $G put text 1 900001 /p/keep/f; $G tree 1 /p/keep/t -2; zfs snapshot gfreeing/keep@a; $G pw text 9 500000 50000 /p/keep/f; zfs snapshot gfreeing/keep@b; $G pw text 10 300000 0 /p/keep/f; zfs snapshot gfreeing/keep@c
zfs clone gfreeing/keep@a gfreeing/clone; for i in $(seq 1 60); do $G pw text $((i+40)) 120000 $((i*6000)) /p/clone/f; $G put text $i 40001 /p/clone/n$i; zpool sync gfreeing; done
zfs clone gfreeing/keep@a gfreeing/clone2; for i in $(seq 1 8); do $G pw text $((i+80)) 120000 $((i*9000)) /p/clone2/f; zpool sync gfreeing; done; zfs snapshot gfreeing/clone2@x; $G put text 50 120000 /p/clone2/g; for i in $(seq 5); do $G pw text $((i+80)) 60000 $((i*3000)) /p/clone2/g; zpool sync gfreeing; done
zfs clone gfreeing/keep@c gfreeing/clone3; $G pw text 9 60000 90000 /p/clone3/f
zfs create -o recordsize=4K gfreeing/big; for i in 1 2 3 4 5 6; do $G put text $i 1500001 /p/big/f$i; done; zfs create -V 4M -o volblocksize=4K gfreeing/vol; $G pw text 3 3000000 0 $(zv gfreeing/vol) s; zpool sync gfreeing
zfs hold tag1 gfreeing/keep@b; zfs hold "second tag" gfreeing/keep@b; zfs destroy -d gfreeing/keep@b; zfs destroy -d gfreeing/keep@c
param zfs_async_block_max_blocks 40; t destroy
zfs destroy gfreeing/big; zfs destroy gfreeing/vol; zfs destroy gfreeing/clone; zfs snapshot gfreeing/keep@d; zpool get freeing,leaked gfreeing
zpool export gfreeing; t exported
collect gfreeing
G
finish <<'R'
One disk, ashift=12, OpenZFS 2.3.2: destroyed file systems and a volume still being freed (zfs_async_block_max_blocks), a destroyed clone whose livelist is being freed, clones with livelists of several parts, snapshots whose destruction is deferred by holds and a clone. Generator: generators/freeing.sh.
R
