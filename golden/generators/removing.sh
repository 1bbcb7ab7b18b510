. "$(dirname "$0")/common.sh"
begin removing 2101; disk 1 256M; disk 1 72M; disk 1 256M; POOL=gremoving; STATE="importable: the removal of a device is under way"; OMIT=disk1.img
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gremoving /dev/loop0 /dev/loop1
zfs create -o compression=off -o recordsize=32K gremoving/raw; for i in 1 2 3; do $G put text $i 90001 /p/raw/f$i; done; $G many /p/raw m text 20 100 5000; zfs snapshot -r gremoving@before
must zpool remove -w gremoving loop1; rm /p/raw/f2; $G put text 9 90001 /p/raw/g1; zfs snapshot -r gremoving@one
zfs create -o compression=off -o recordsize=1M gremoving/zeros; for i in 1 2 3 4 5; do $G put zero 0 15000000 /p/zeros/z$i; $G put text $i 30000 /p/zeros/t$i; done; zpool sync gremoving
must zpool add -f gremoving /dev/loop2
param zfs_remove_max_segment 65536; param zfs_removal_suspend_progress 1
must zpool remove gremoving loop0; zpool sync gremoving
# The copying looks once a second whether it may go on: short openings, until one lets some through.
copied() { zpool status gremoving | grep -qE "copied out of.* ([5-9]|[1-9][0-9])(\.[0-9]*)?% done"; }
for k in $(seq 150); do param zfs_removal_suspend_progress 0; sleep 0.06; param zfs_removal_suspend_progress 1; sleep 0.25; copied && break; done
zpool status gremoving | grep -A3 remove:; zpool sync gremoving
rm /p/raw/f3 /p/raw/m00001* /p/zeros/z2 /p/zeros/t4; $G put text 20 70001 /p/raw/during; zpool sync gremoving; zfs snapshot -r gremoving@two; rm /p/raw/f1 /p/zeros/z5; zpool sync gremoving
zpool status gremoving | grep -A3 remove:
collect gremoving
G
finish <<'R'
A stripe from which one disk was removed (disk1, left out), with the removal of a second one, which holds blocks of the first, under way: stopped after a part by zfs_removal_suspend_progress; blocks of both parts freed and written since. ashift=12, OpenZFS 2.3.2. Generator: generators/removing.sh.
R
