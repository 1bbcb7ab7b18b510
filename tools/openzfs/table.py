"""docs/options.md: every verb and option of zfs(8) and zpool(8), and why Cenote lacks some."""
import re
import textwrap

from . import rust, verbs

HEAD = """# Verbs and options of zfs(8) and zpool(8)

This page lists every verb and option of OpenZFS {versions}, and those that Cenote has. It is for
administrators, and for authors of programs that call `zfs` and `zpool`. `tools/upstream --table` makes it
from OpenZFS's usage texts, manual and calls of getopt, and from the declarations of Cenote's commands.

Cenote has {verbs_had} of {verbs_all} verbs. It takes {documented_had} of the {documented_all} options in the
usage texts or the manual, and {silent_had} of the {silent_all} that are in neither; {silent} of them change
nothing here. `-j` and `--json` work with every verb.
"""
SILENT = re.compile(r"Accepted for [a-z]+(?: and ignored)?(?:: )?")


class Counts:
    """Verbs and options so far: here, and in all."""

    def __init__(self):
        self.verbs_had = self.verbs_all = self.documented_had = self.documented_all = 0
        self.silent_had = self.silent_all = self.silent = 0

    def add(self, has_verb, options, documented, had, silent):
        self.verbs_had += has_verb
        self.verbs_all += 1
        self.documented_had += len(documented & had)
        self.documented_all += len(documented)
        self.silent_had += len(had - documented)
        self.silent_all += len(options - documented)
        self.silent += len(silent)


def order(option):
    return option.startswith("--"), option.lower(), option.swapcase()


def quoted(options):
    return " ".join(f"`{option}`" for option in sorted(options, key=order))


def short(version):
    return "master" if version.endswith(".99") else ".".join(version.split(".")[:2])


def since(places, versions):
    """When an item came or went, if not all versions have it."""
    having = [version for version in versions if version in places]
    if len(having) == len(versions):
        return ""
    return f"from {having[0]}" if having[-1] == versions[-1] else f"until {having[-1]}"


def gathered(trees, versions):
    """Verb to (its versions, its options); an option has its places by version."""
    found = {}
    for version, read in zip(versions, trees):
        for verb, options in verbs.of(read).items():
            in_versions, all_options = found.setdefault(verb, (set(), {}))
            in_versions.add(version)
            for option, places in options.items():
                all_options.setdefault(option, {})[version] = places
    return found


def text(trees, root, reasons):
    versions = [short(read.version()) for read in trees]
    there, here, counts = gathered(trees, versions), rust.verbs(root), Counts()
    parts = [tool_text(tool, there, here, reasons, versions, counts) for tool in ("zfs", "zpool")]
    head = HEAD.format(versions=" and ".join(versions), **vars(counts)).strip().split("\n\n")
    wrapped = [textwrap.fill(" ".join(part.split()), 110, break_on_hyphens=False) for part in head]
    return "\n\n".join(wrapped) + "\n" + "".join(parts)


def tool_text(tool, there, here, reasons, versions, counts):
    rows, notes = [], []
    for verb in sorted(name for name in there if name.startswith(tool + " ")):
        in_versions, options = there[verb]
        ours = here.get(verb, {})
        documented = {o for o, at in options.items() if any(places - {"program"} for places in at.values())}
        had = options.keys() & ours.keys()
        silent = {option for option in had if SILENT.match(ours[option])}
        counts.add(verb in here, options.keys(), documented, had, silent)
        name, came = verb.split()[1], since(in_versions, versions)
        cells = [f"`{name}`" + (f" ({came})" if came else ""), quoted(had - silent), quoted(silent)]
        lacks = quoted(options.keys() - had)
        rows.append(cells + [lacks if verb in here else f"the verb {lacks}".strip()])
        if verb not in here:
            notes.append([f"`{name}`", came, reason(reasons, "verb", verb)])
            continue
        for option in sorted(options.keys() - had | silent, key=order):
            when = [since(options[option], versions), "" if option in documented else "undocumented"]
            why = reason(reasons, "option", f"{verb} {option}")
            if option in silent:
                why = SILENT.sub("accepted: ", ours[option]).rstrip(": ")
            notes.append([f"`{name} {option}`", ", ".join(filter(None, when)), why])
    return (f"\n## {tool}\n\n" + table(["verb", "has", "takes, to no effect", "lacks"], rows)
            + f"\n### Reasons: {tool}\n\n" + table(["verb or option", "in OpenZFS", "reason"], notes))


def reason(reasons, kind, item):
    return reasons.absent.get((kind, item), "**none yet**")


def table(heads, rows):
    lines = ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|\n" for row in [heads] + rows]
    lines.insert(1, "|" + "---|" * len(heads) + "\n")
    return "".join(lines)
