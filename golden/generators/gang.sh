. "$(dirname "$0")/common.sh"
begin gang 2006; disk 5 80M; POOL=ggang; KEYS='{"ggang/enc":{"keyformat":"hex","key":"00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f"}}'
guest <<'G'
must zpool create -f -o ashift=9 -o cachefile=none -O mountpoint=/p ggang raidz1 /dev/loop0 /dev/loop1 /dev/loop2 mirror /dev/loop3 /dev/loop4
param metaslab_force_ganging 8192; param metaslab_force_ganging_pct 60
$G tree 1 /p/t -2
for r in 16K 128K 1M; do zfs create -o recordsize=$r -o compression=off ggang/r$r; $G put text 3 300001 /p/r$r/rand; done; zfs create -o copies=2 -o recordsize=64K ggang/c2; $G put text 4 200000 /p/c2/text; $G put text 5 100000 /p/c2/rand
must zfs create -o encryption=aes-128-gcm -o keyformat=hex -o keylocation=prompt -o compression=off ggang/enc <<< "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f"; $G put text 6 200001 /p/enc/rand
zfs create -o checksum=sha512 -o compression=zstd ggang/sha; $G put text 7 700000 /p/sha/text
zfs snapshot -r ggang@s; zpool sync ggang; param metaslab_force_ganging 16777217
loadkeys() { echo 00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f | zfs load-key ggang/enc; }
collect ggang
G
finish <<'R'
raidz1 of three disks and a mirror of two, ashift=9, OpenZFS 2.3.2, written with metaslab_force_ganging=8192 for 60 % of blocks: gang blocks of many sizes, nested ones, with two copies, encrypted, compressed. Key in pool.json. Generator: generators/gang.sh.
R
