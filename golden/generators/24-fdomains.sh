# By OpenZFS's master: ORACLE24 is the folder in which `proof/oracle/setup24` installed it (ORACLE=2.4).
export ORACLE=2.4 ORACLE24=${ORACLE24:-/opt/openzfs-master} XDG_CACHE_HOME=${XDG_CACHE_HOME:-/var/tmp/openzfs-master}
PATH=$ORACLE24/sbin:$PATH
. "$(dirname "$0")/common.sh"
begin 24-fdomains 2401; disk 8 288M; POOL=p24fd
# Five slices; files between fillers of zeros, which are removed again, so that each slice has some.
guest -t 2400 <<'G'
must zpool create -f -o ashift=12 -o cachefile=none -O mountpoint=/p -O compression=off p24fd draid1:2d:1s \
  fgroup ${LO[@]:0:4} fgroup ${LO[@]:4:4}
zfs create -o recordsize=4K p24fd/r4k; zfs create -o compression=lz4 p24fd/lz4; zfs create -o recordsize=1M p24fd/fill
zfs create -V 4M -o volblocksize=64K p24fd/vol
for i in 1 2 3 4 5 6; do
  $G put rand $i $((2001 + i * 1000)) /p/rand$i; $G put text $i $((33001 + i * 4096)) /p/text$i
  $G put text $i 700 /p/tiny$i; $G put half $i $((5001 + i)) /p/r4k/half$i; $G put text $i 40001 /p/lz4/text$i
  $G pw text $i 20000 $((i * 393216)) "$(zv p24fd/vol)"
  [ $i = 6 ] || $G put zero $i 188743680 /p/fill/$i
  zpool sync p24fd; zpool list p24fd
done
rm /p/fill/*; zpool sync p24fd; zfs snapshot -r p24fd@s
zpool status p24fd; zpool get failure_domain,failure_group p24fd all-vdevs
collect p24fd
# What no release has yet.
sed -i -e '/\tzoned_uid\t/d' -e '/\tfeature@draid_failure_domains\t/d' $O/props.tsv
G
for image in "$W"/img/*.img; do fallocate -d "$image"; done
finish <<'R'
dRAID with failure domains (draid1:2d:4c:8w:1s, two failure groups over four failure domains, one distributed spare), ashift=12, by OpenZFS's master of 2026-08-15 (be7657e33f). Five slices with files in each. Generator: generators/24-fdomains.sh.
R
