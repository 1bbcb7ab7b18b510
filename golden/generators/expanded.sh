. "$(dirname "$0")/common.sh"
begin expanded 2003; disk 6 80M; POOL=gexp
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gexp raidz2 /dev/loop0 /dev/loop1 /dev/loop2 /dev/loop3
zfs create -o recordsize=1M -o compression=off gexp/raw; $G tree 1 /p/t -2; $G put text 3 300001 /p/raw/four; n=500; k=0; while [ $n -lt 60000 ]; do $G put text $k $n /p/raw/a$n; n=$((n*9/7+2301)); k=$((k+1)); done
must zpool attach -w gexp raidz2-0 /dev/loop4; $G put text 4 300001 /p/raw/five; $G tree 2 /p/t5 -2; zfs snapshot -r gexp@five
must zpool attach -w gexp raidz2-0 /dev/loop5; $G put text 5 300001 /p/raw/six; $G tree 3 /p/t6 -2; zfs snapshot -r gexp@six
zpool status gexp
collect gexp
G
finish <<'R'
raidz2 of four disks expanded to five and then to six (RAID-Z expansion), with data written at each width, ashift=12, OpenZFS 2.3.2. Generator: generators/expanded.sh.
R
