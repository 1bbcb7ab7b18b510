"""Verbs and options of Cenote's `zfs` and `zpool`, read from the clap declarations in crates/cli.

Idea: an enum of verbs names a struct for each; the fields of that struct, and of those it flattens, are the
options. A verb or option that exists only to be refused (`not_yet::option`, "Refused:") does not count.
"""
import pathlib
import re

DECLARATION = re.compile(r"(?:pub(?:\([a-z]+\))? )?(struct|enum) (\w+) \{\n(.*?)^\}", re.M | re.S)
# Options of every command that mean the same under `zfs` and `zpool`...
COMMON = {"-j", "--json"}
# ...and those that do so in one verb.
COMMON_OF = {"zpool import": {"-d", "-F"}, "zpool iostat": {"-h"}}


class Item:
    """A struct or enum: its fields or variants, each a (attributes, documentation, declaration)."""

    def __init__(self, path, name, kind, body):
        self.path, self.name, self.kind = path, name, kind
        self.members = list(members(body))


def kebab(name):
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", name).replace("_", "-").lower()


def members(body):
    attributes, documentation = [], []
    lines = iter(body.split("\n"))
    for line in lines:
        text = line.strip()
        if text.startswith("///"):
            documentation.append(text[3:].strip())
        elif text.startswith("#["):
            while text.count("[") > text.count("]"):
                text += " " + next(lines).strip()
            attributes.append(text)
        elif text and not text.startswith("//"):
            yield " ".join(attributes), " ".join(documentation), text.rstrip(",")
            attributes, documentation = [], []


class Sources:
    """All declarations below crates/cli/src/command, by file stem and name."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.items, self.refused, self.texts = {}, set(), {}
        for path in sorted((self.root / "crates/cli/src").rglob("*.rs")):
            text = path.read_text()
            self.texts[path] = text
            for found in DECLARATION.finditer(text):
                self.items[path, found[2]] = Item(path, found[2], found[1], found[3])
            self.refused |= set(re.findall(r'not_yet::option\(\s*"((?:zfs|zpool) [\w-]+ -[\w-]+)"', text))

    def find(self, at, typed):
        """The item that a type names in a file: `module::Name`, or `Name` of this file or a `use`."""
        typed = re.sub(r"^(Deferred|Box|Option)<(.*)>$", r"\2", typed.strip())
        parts = typed.split("::")
        if len(parts) == 1 and (at, typed) in self.items:
            return self.items[at, typed]
        if len(parts) == 1:
            used = re.search(rf"use ([\w:]+)::(?:\{{[^}}]*\b)?{typed}\b", self.texts[at])
            parts = (used[1].split("::") if used else []) + parts
        candidates = [item for (path, name), item in self.items.items() if name == parts[-1]]
        if len(candidates) > 1 and len(parts) > 1:
            module = at.parent.name if parts[-2] == "super" else parts[-2]
            near = [item for item in candidates if item.path.stem == module]
            candidates = near or candidates
        # Of files with the same name, the one below the file that names it.
        below = [item for item in candidates if str(item.path).startswith(str(at.with_suffix("")))]
        return (below or candidates or [None])[0]

    def options(self, item, verb):
        """Options to their documentation, of a verb's struct and those that it flattens."""
        found = {}
        for attributes, documentation, declared in item.members:
            field = re.match(r"(?:pub(?:\([^)]*\))? )?(\w+): (.*)", declared)
            if not field:
                continue
            if "flatten" in attributes:
                part = self.find(item.path, field[2])
                found.update(self.options(part, verb) if part else {})
                continue
            argument = " ".join(re.findall(r"#\[arg\((.*?)\)\]", attributes))
            names = list(spelled(argument, field[1]))
            # An option that is refused is refused under all its names.
            is_refused = "Refused:" in documentation or self.refused & {f"{verb} {name}" for name in names}
            if not is_refused:
                found.update(dict.fromkeys(names, documentation))
        return found


def spelled(argument, field):
    """Letters and words of `#[arg(...)]`."""
    bare = re.sub(r'"[^"]*"', '""', argument)
    for letter in re.findall(r"\b(?:short|short_alias|visible_short_alias)\s*=\s*'(.)'", argument):
        yield "-" + letter
    for letters in re.findall(r"\b(?:visible_)?short_aliases\s*=\s*\[([^]]*)\]", argument):
        yield from ("-" + letter for letter in re.findall(r"'(.)'", letters))
    if re.search(r"(^|[\s,])short\s*(,|$)", bare):
        yield "-" + field[0]
    for word in re.findall(r'\b(?:long|alias|visible_alias)\s*=\s*"([\w-]+)"', argument):
        yield "--" + word
    for words in re.findall(r"\b(?:visible_)?aliases\s*=\s*\[([^]]*)\]", argument):
        yield from ("--" + word for word in re.findall(r'"([\w-]+)"', words))
    if re.search(r"(^|[\s,])long\s*(,|$)", bare):
        yield "--" + kebab(field)


def verbs(root):
    """Verb to option to its documentation."""
    sources, found = Sources(root), {}
    for tool in ("zfs", "zpool"):
        path = sources.root / f"crates/cli/src/command/{tool}.rs"
        for attributes, _, declared in sources.items[path, tool.capitalize()].members:
            variant = re.match(r"(\w+)(?:\(([\w:<>]+)\))?$", declared)
            if not variant or "external_subcommand" in attributes:
                continue
            named = re.search(r'\bname\s*=\s*"([\w-]+)"', attributes)
            item = sources.find(path, variant[2]) if variant[2] else None
            verb = f"{tool} {named[1] if named else kebab(variant[1])}"
            common = COMMON | COMMON_OF.get(verb, set())
            own = sources.options(item, verb) if item else {}
            found[verb] = {**dict.fromkeys(sorted(common), ""), **own}
    return found
