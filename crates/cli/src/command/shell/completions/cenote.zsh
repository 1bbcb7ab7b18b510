#compdef cenote
# Completions of cenote, and of links to it named zpool and zfs.
_cenote() {
    local line
    local -a open closed open_shown closed_shown
    for line in "${(@f)$(command cenote complete -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        # More can follow what ends like this.
        if [[ ${line%%$'\t'*} == *[@\#/:=] ]]; then
            open+=("${line%%$'\t'*}") open_shown+=("${line/$'\t'/  }")
        else
            closed+=("${line%%$'\t'*}") closed_shown+=("${line/$'\t'/  }")
        fi
    done
    (( $#open + $#closed )) || { _files; return }
    (( $#open )) && compadd -S '' -l -d open_shown -a open
    (( $#closed )) && compadd -l -d closed_shown -a closed
}
if [[ $funcstack[1] == _cenote ]]; then
    _cenote "$@"
else
    compdef _cenote cenote
fi
# OpenZFS has tools of these names: only links to cenote are meant.
() {
    local tool
    for tool in zpool zfs; do
        [[ ${commands[$tool]-} -ef ${commands[cenote]-} ]] && compdef _cenote $tool
    done
    return 0
}
