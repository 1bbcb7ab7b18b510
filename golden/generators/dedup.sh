. "$(dirname "$0")/common.sh"
begin dedup 2007; disk 3 96M; POOL=gdedup
guest <<'G'
param zfs_bclone_enabled 1
must zpool create -f -o ashift=12 -o cachefile=none -o feature@fast_dedup=disabled -O mountpoint=/p gdedup /dev/loop0 special /dev/loop1 dedup /dev/loop2
for c in sha256 skein,verify blake3; do d=${c%,*}; zfs create -o dedup=$c -o compression=off gdedup/$d; $G put rand 5 700000 /p/$d/one; cp /p/$d/one /p/$d/two; $G pw rand 9 200000 131072 /p/$d/two; $G put rand 6 300000 /p/$d/uniq; done
zfs create gdedup/c2; zfs set copies=2 dedup=sha512 gdedup/c2; $G put rand 7 300000 /p/c2/one; cp /p/c2/one /p/c2/two
zfs create -o dedup=off gdedup/clone; $G put rand 8 900000 /p/clone/src; zpool sync gdedup; $G clone /p/clone/src /p/clone/dst; $G crange /p/clone/src 131072 /p/clone/part 0 262144; zpool sync gdedup; zpool get bcloneused,bclonesaved gdedup
zfs snapshot -r gdedup@s; rm /p/sha256/two; zpool sync gdedup
collect gdedup
G
finish <<'R'
One disk, a special vdev and a dedup vdev, ashift=12, OpenZFS 2.3.2, legacy deduplication tables (fast_dedup disabled): sha256, skein with verify, blake3, sha512 with copies=2. Generator: generators/dedup.sh.
R
