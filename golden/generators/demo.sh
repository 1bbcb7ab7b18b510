. "$(dirname "$0")/common.sh"
begin demo 2014; disk 4 64M; POOL=tank
guest <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p -O compression=zstd -O xattr=sa -O atime=off tank raidz1 ${LO[@]}
zfs create tank/home; zfs create tank/home/ada; zfs create tank/home/grace; zfs create -o recordsize=1M tank/photos; zfs create -V 4M -o volblocksize=16K -o snapdev=visible tank/vm-disk
$G many /p/home/ada letter- text 40 200 6000; mkdir /p/home/ada/projects; $G many /p/home/ada/projects chapter- text 20 1000 12000 7; $G setx /p/home/ada/letter-000001 user.mood text 1 20; ln -s projects/chapter-000001 /p/home/ada/start-here
mkdir /p/home/grace/code; $G many /p/home/grace/code module- text 40 100 6000 9; chown -R 1000:1000 /p/home/grace; chown -R 1001:1001 /p/home/ada; chmod 0700 /p/home/ada
for y in 2023 2024 2025; do mkdir /p/photos/$y; $G many /p/photos/$y img- text 4 30000 90000 $y; done
v=$(zv tank/vm-disk); $G pw text 5 200000 65536 $v s
zfs snapshot -r tank@monday; rm /p/home/ada/letter-000007 /p/home/grace/code/module-000003; echo "new work" > /p/home/ada/projects/chapter-000021; zfs snapshot -r tank@tuesday; $G put text 3 30000 /p/home/ada/todo
collect tank
G
finish <<'R'
raidz1 over four disks, ashift=12, OpenZFS 2.3.2: a small household (home folders, photos, a volume, two snapshots) for `cenote demo`. Generator: generators/demo.sh.
R
