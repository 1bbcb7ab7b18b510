. "$(dirname "$0")/common.sh"
begin names 2012; disk 1 96M; POOL=gnames
guest <<'G'
param zap_micro_max_size 1048576
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p gnames /dev/loop0
zfs create -o longname=on gnames/long; cd /p/long; for i in 1 2 3; do $G links /p/long f 5 700 2>&1 | tail -1; done; touch "$(head -c 1000 /dev/zero | tr '\0' L)" "$(head -c 256 /dev/zero | tr '\0' M)" "$(head -c 255 /dev/zero | tr '\0' N)"; mkdir "$(head -c 600 /dev/zero | tr '\0' d)"; cd /
zfs create gnames/micro; mkdir /p/micro/big; $G links /p/micro/big n 6000 20 2>&1 | tail -1; ls /p/micro/big | wc -l
zfs create -o dnodesize=auto -o xattr=sa gnames/xa; for i in $(seq 40); do echo $i > /p/xa/f$i; $G setx /p/xa/f$i user.k text $i $((i*37)); done
zfs create gnames/src; for i in $(seq 30); do $G put text $i 50000 /p/src/f$i; done; zfs snapshot gnames/src@all; zfs clone gnames/src@all gnames/redclone; rm /p/redclone/f1*; zfs snapshot gnames/redclone@r; zfs redact gnames/src@all book gnames/redclone@r; zfs send --redact book gnames/src@all | zfs recv gnames/redacted
zfs bookmark gnames/src@all gnames/src#b
zfs snapshot -r gnames@s
collect gnames
G
finish <<'R'
One disk, ashift=12, OpenZFS 2.3.2: long names (feature longname, up to 1000 bytes), a directory in a large micro ZAP (zap_micro_max_size=1M), a redacted dataset with its redaction bookmark (files of it read as EIO). Generator: generators/names.sh.
R
