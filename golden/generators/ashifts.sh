. "$(dirname "$0")/common.sh"
begin ashifts 2011; disk 4 160M; POOL=gashift
guest <<'G'
must zpool create -f -o ashift=9 -o cachefile=none -O mountpoint=/p gashift /dev/loop0
must zpool add -f -o ashift=13 gashift /dev/loop1; must zpool add -f -o ashift=14 gashift /dev/loop2; must zpool add -f -o ashift=16 gashift /dev/loop3
for r in 512 16K 1M; do zfs create -o recordsize=$r gashift/r$r; $G tree 2 /p/r$r/t -2; done; zfs create -o copies=3 gashift/c3; $G put text 4 500000 /p/c3/text
zfs snapshot -r gashift@s
collect gashift
G
finish <<'R'
A stripe of four disks with ashift 9, 13, 14 and 16, OpenZFS 2.3.2. Generator: generators/ashifts.sh.
R
