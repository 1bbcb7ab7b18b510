. "$(dirname "$0")/common.sh"
begin expanding 2004; disk 4 80M; POOL=gexping
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gexping raidz1 /dev/loop0 /dev/loop1 /dev/loop2
zfs create -o recordsize=1M -o compression=off gexping/raw; $G tree 1 /p/t -2; for i in 1 2 3 4 5 6 7 8; do $G put text $i 1500001 /p/raw/before$i; done
param raidz_expand_max_reflow_bytes 12000000
must zpool attach gexping raidz1-0 /dev/loop3; sleep 8; $G put text 14 1500001 /p/raw/during; zpool sync gexping; sleep 2; zpool status gexping
zfs snapshot -r gexping@s
collect gexping
G
finish <<'R'
raidz1 of three disks in the middle of its expansion to four (paused after about 12 MB by raidz_expand_max_reflow_bytes), ashift=12, OpenZFS 2.3.2. Generator: generators/expanding.sh.
R
