. "$(dirname "$0")/common.sh"
begin duplog 2109; disk 2 64M; POOL=gduplog
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gduplog /dev/loop0 /dev/loop1
param zfs_dedup_log_txg_max 100000; param zfs_dedup_log_flush_entries_min 0; param zfs_dedup_log_flush_entries_max 0; param zfs_dedup_log_flush_min_time_ms 0; param zfs_min_metaslabs_to_flush 0; param zfs_bclone_enabled 1
$G tree 1 /p/t -2; zfs create -o dedup=sha256 -o recordsize=4K gduplog/dd; zfs create gduplog/bc; for i in 1 2 3 4; do $G put text $i 60000 /p/dd/f$i; cp /p/dd/f$i /p/dd/g$i; $G pw text 77 9000 9000 /p/dd/g$i; zpool sync gduplog; done; rm /p/dd/f2 /p/dd/g2 /p/dd/f3; zpool sync gduplog
$G put text 40 90000 /p/bc/src; zpool sync gduplog; for i in $(seq 40); do $G clone /p/bc/src /p/bc/c$i; done; zpool sync gduplog; rm /p/bc/src; zfs snapshot -r gduplog@s; zpool sync gduplog; $G put text 60 30000 /p/dd/last; cp /p/dd/last /p/dd/last2; zpool sync gduplog; zpool get all gduplog | grep -E "dedup|bclone"
collect gduplog
G
finish <<'R'
A stripe of two disks, ashift=12, OpenZFS 2.3.2, exported while all of its dedup entries were in the log only (zfs_dedup_log_* tunables), some of them without references left; a block cloned forty times whose first file was removed. zdb takes the blocks without references as leaked. Generator: generators/duplog.sh.
R
