# Completions of cenote, and of links to it named zpool and zfs.
_cenote() {
    local words current line
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
    current=${words[-1]}
    # Bash replaces only what follows the last character that breaks words, as '@' and ':' do.
    local kept=${#current}
    while ((kept > 0)) && [[ $COMP_WORDBREAKS != *"${current:kept-1:1}"* ]]; do ((kept--)); done
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
        COMPREPLY+=("${line:kept}")
    done < <(command cenote complete -- "${words[@]}" 2>/dev/null)
    # More can follow what ends like this.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[@#/:=] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o default -F _cenote cenote
# OpenZFS has tools of these names: only links to cenote are meant.
for _cenote_tool in zpool zfs; do
    [[ $(type -P "$_cenote_tool") -ef $(type -P cenote) ]] && complete -o default -F _cenote "$_cenote_tool"
done
unset _cenote_tool
