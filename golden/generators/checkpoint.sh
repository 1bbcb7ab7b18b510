. "$(dirname "$0")/common.sh"
begin checkpoint 2009; disk 2 80M; POOL=gckpt
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gckpt mirror /dev/loop0 /dev/loop1
$G tree 1 /p/t -2; $G put rand 2 900001 /p/old; zfs create gckpt/gone; $G put text 3 300000 /p/gone/f; zfs snapshot -r gckpt@s
must zpool checkpoint gckpt; rm -r /p/t; $G put rand 4 800001 /p/new; zfs destroy -r gckpt/gone; zfs destroy gckpt@s; zpool sync gckpt; zpool list -v gckpt
collect gckpt
G
finish <<'R'
Mirror of two disks, ashift=12, OpenZFS 2.3.2, with a pool checkpoint and destructive changes after it. Generator: generators/checkpoint.sh.
R
