# Makes every golden pool again, one after the other.
for g in demo draid draidspare expanded expanding removed removing gang dedup fastdedup checkpoint spares ashifts names damaged freeing duplog errlog; do bash "$(dirname "$0")/$g.sh" || echo "FAILED $g"; done
