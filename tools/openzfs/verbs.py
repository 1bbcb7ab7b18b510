"""Verbs and options of OpenZFS's `zfs` and `zpool`: its usage texts, manual pages and calls of getopt.

`of` returns verb to option to the places that have it: a set of "usage", "manual", "program".
"""
import re

TOOLS = {"zfs": "cmd/zfs/zfs_main.c", "zpool": "cmd/zpool/zpool_main.c"}
OPTION = re.compile(r"(?<![\w=-])(--[a-z][a-z-]*|-[A-Za-z0-9](?:[A-Za-z0-9]|\[[A-Za-z]\])*)")
# Macros of mdoc(7) that may follow Fl.
MACROS = {"Ar", "Cm", "Fl", "Ns", "Oc", "Oo", "Op", "Pa", "Sy", "Xc", "Xo"}
# Functions are found by the style of the sources: a name in the first column, a brace alone.
FUNCTION = re.compile(r"(?m)^(\w+)\(([^;{]*)\)\n\{\n(.*?)^\}", re.S)


def letters(word):
    """`-p[p]u` is -p and -u; `--json-int` is itself."""
    if word.startswith("--"):
        return {word}
    return {"-" + letter for letter in word[1:] if letter.isalnum()}


def add(found, verb, options, place):
    for option in options:
        found.setdefault(verb, {}).setdefault(option, set()).add(place)


def usage_texts(code):
    """HELP_NAME to its text."""
    body = code[code.index("get_usage("):]
    body = body[:body.index("\n}")]
    texts = {}
    for match in re.finditer(r"case (HELP_\w+):(.*?)(?=case HELP_|default:)", body, re.S):
        texts[match[1]] = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match[2])).replace("\\t", "\t")\
            .replace("\\n", "\n").replace('\\"', '"')
    return texts


def functions(code):
    return {m[1]: m[3] for m in FUNCTION.finditer(code)}


def parsed(bodies, function, verb, depth=3):
    """Options that a function, or the one that it calls for all its work, takes by getopt."""
    body = bodies.get(function, "")
    call = re.search(r"getopt(?:_long)?\(argc,\s*argv,(.*?)\)\)?\s*!=\s*-1", body, re.S)
    if call:
        choice = re.search(r'op == OP_(\w+)\s*\?\s*"([^"]*)"\s*:\s*"([^"]*)"', call[1])
        if choice:
            text = choice[2] if verb.endswith(choice[1].lower()) else choice[3]
        else:
            literal = re.search(r'"([^"]*)"', call[1])
            text = literal[1] if literal else by_choice(body, verb)
        found = {"-" + letter for letter in re.sub(r"[^A-Za-z0-9]", "", text)}
        longs = re.findall(r'\{\s*"([\w-]+)",\s*\w+,\s*(?:NULL|0|&\w+),\s*(\'?\w+)', body)
        # Verbs that share a function may not take all letters.
        return found | {"--" + name for name, short in longs if short[0] != "'" or "-" + short[1:] in found}
    if depth:
        for callee in re.findall(r"(\w+)\([^;]*argc,\s*argv", body):
            if callee != function and callee in bodies:
                return parsed(bodies, callee, verb, depth - 1)
    return set()


def by_choice(body, verb):
    """`opts = un ? "a" : "b"`, and the like."""
    choice = re.search(r'(?:optstr|opts)\s*=\s*\w+\s*\?\s*"([^"]*)"\s*:\s*"([^"]*)"', body)
    if not choice:
        literal = re.search(r'(?:optstr|opts)\s*=\s*"([^"]*)"', body)
        return literal[1] if literal else ""
    return choice[1] if verb in ("unallow", "hold") else choice[2]


def manual(tree, tool, found):
    for path in tree.below(f"man/man8/{tool}-", ".8"):
        synopsis, verb = False, None
        name = path.rsplit("/", 1)[1][len(tool) + 1:-2]
        lines = tree[path].split("\n")
        for number, line in enumerate(lines):
            if line.startswith(".Sh"):
                section = line[4:].strip()
                synopsis, verb = section == "SYNOPSIS", None
                if section == "EXAMPLES":
                    break
            if line == f".Nm {tool}" and lines[number + 1].startswith(".Cm "):
                verb = lines[number + 1].split()[1]
            listed = line.startswith(".It Fl ") or line.startswith(".It Sy --")
            if synopsis and verb or listed:
                words = re.findall(r"\bFl (-?[\w-]+)", line) if synopsis or listed else []
                options = set().union(*(letters("-" + word) for word in words if word not in MACROS), set())
                options |= set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line))
                target = verb or name
                if f"{tool} {target}" in found:
                    add(found, f"{tool} {target}", options, "manual")


def of(tree):
    found = {}
    for tool, path in TOOLS.items():
        code = tree.code(path)
        texts, bodies = usage_texts(code), functions(code)
        table = code[code.index("command_table[] = {"):]
        table = table[:table.index("\n};")]
        for verb, function, help_of in re.findall(r'\{\s*"([\w-]+)",\s*(\w+),\s*(HELP_\w+)\s*\}', table):
            name = f"{tool} {verb}"
            found[name] = {}
            for word in OPTION.findall(texts.get(help_of, "")):
                add(found, name, letters(word), "usage")
            add(found, name, parsed(bodies, function, verb), "program")
        manual(tree, tool, found)
    return found
