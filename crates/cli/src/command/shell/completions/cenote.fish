# Completions of cenote, and of links to it named zpool and zfs.
function __cenote_complete
    command cenote complete -- (commandline -opc) (commandline -ct) 2>/dev/null
end
complete -c cenote -a '(__cenote_complete)'
# OpenZFS has tools of these names: only links to cenote are meant.
for tool in zpool zfs
    if command -q $tool; and command -q cenote
        and test (realpath (command -s $tool)) = (realpath (command -s cenote))
        complete -c $tool -a '(__cenote_complete)'
    end
end
