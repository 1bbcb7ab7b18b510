. "$(dirname "$0")/common.sh"
begin spares 2010; disk 7 72M; POOL=gspares; STATE="degraded: a spare stands in for disk1, disk3 is being replaced by disk6 (resilver held)"
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gspares raidz1 /dev/loop0 /dev/loop1 /dev/loop2 mirror /dev/loop3 /dev/loop4 spare /dev/loop5
$G tree 1 /p/t -2; zfs create -o compression=off gspares/raw; for i in 1 2 3 4; do $G put text $i 400001 /p/raw/f$i; done; zpool sync gspares
must zpool offline gspares loop1; must zpool replace -w gspares loop1 loop5; $G put text 5 150001 /p/raw/g
param zfs_scan_suspend_progress 1
must zpool replace gspares loop3 loop6; sleep 3; $G put text 6 150001 /p/raw/h; zpool sync gspares; zpool status gspares; zfs snapshot -r gspares@s
collect gspares
G
finish <<'R'
raidz1 of three disks and a mirror of two with a hot spare in use (spare-N vdev: disk1 offline, disk5 in its place) and a replacement in progress (replacing-N vdev: disk3 by disk6, resilver suspended), ashift=12, OpenZFS 2.3.2. Generator: generators/spares.sh.
R
