# Makes the golden pools of this folder again, one after the other.
pools="demo draid draidspare expanded expanding removed removing gang dedup fastdedup checkpoint spares \
ashifts names damaged freeing duplog errlog"
for pool in $pools; do
    bash "$(dirname "$0")/$pool.sh" || echo "FAILED $pool"
done
