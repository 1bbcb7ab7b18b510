"""OpenZFS's tables, read from its C sources and manual.

Each function returns a dict of item to value. A value is a fact to compare (a number, a kind), or None.
"""
import re

from . import verbs


def arguments(text, at):
    """The arguments of a call whose '(' is at `at`, split at top-level commas."""
    depth, begin, found, quoted = 0, at + 1, [], False
    for i in range(at, len(text)):
        c = text[i]
        if c == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif c in "({[":
            depth += 1
        elif c in ")}]":
            depth -= 1
            if depth == 0:
                return found + [text[begin:i].strip()]
        elif c == "," and depth == 1:
            found.append(text[begin:i].strip())
            begin = i + 1
    return found


def calls(text, name):
    """Arguments of each call of a function whose name matches; its own definition has no literals."""
    for match in re.finditer(rf"\b{name}\s*\(", text):
        yield match[0], arguments(text, match.end() - 1)


def unquoted(text):
    return text.strip().strip('"')


def enum(text, start):
    """Enumerators of `enum NAME {` or `typedef enum NAME {`, with their numbers."""
    found = re.search(start + r"\s*\{(.*?)\}", text, re.S)
    numbers, next_number = {}, 0
    for row in (found[1] if found else "").split(","):
        name, _, number = (part.strip() for part in row.partition("="))
        if not re.fullmatch(r"\w+", name):
            continue
        if number:
            next_number = numbers.get(number, int(number, 0) if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", number)
                                      else next_number)
        numbers[name] = next_number
        next_number += 1
    return numbers


def defines(text, prefix):
    """`#define PREFIX_NAME value`, continued lines included."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    return {m[1]: m[2].strip() for m in re.finditer(rf"(?m)^#define\s+({prefix}\w*)[ \t]+(.+)$", text)}


def features(tree):
    text = tree.code("module/zcommon/zfeature_common.c")
    rows, lists = {}, {}
    for match in re.finditer(r"spa_feature_t\s+(\w+)\[\]\s*=\s*\{(.*?)\}", text, re.S):
        # A list belongs to the call after it: some have the same name in blocks of their own.
        lists.setdefault(match[1], []).append((match.start(), re.findall(r"SPA_FEATURE_\w+", match[2])))
    for match in re.finditer(r"zfeature_register\s*\(", text):
        given = arguments(text, match.end() - 1)
        if len(given) < 8 or not given[1].startswith('"'):
            continue
        before = [names for at, names in lists.get(given[6], []) if at < match.start()]
        rows[given[0]] = (unquoted(given[1]), unquoted(given[2]), given[4], before[-1] if before else [])
    flags = {"READONLY_COMPAT": "read-only-compatible", "MOS": "mos", "ACTIVATE_ON_ENABLE": "activates",
             "PER_DATASET": "per-dataset", "NO_UPGRADE": "no-upgrade"}
    found = {}
    for guid, name, set_flags, depends in rows.values():
        traits = {flags[f] for f in re.findall(r"ZFEATURE_FLAG_(\w+)", set_flags) if f in flags}
        needs = {rows[d][1] for d in depends if d in rows}
        found[guid] = " ".join([name] + sorted(traits) + sorted(f"needs:{n}" for n in needs))
    return found


def index_tables(text, numbers):
    """Tables of property values: variable to {name: number or None}."""
    tables = {}
    for match in re.finditer(r"zprop_index_t\s+(\w+)\[\]\s*=\s*\{", text):
        body = "{" + "".join(f"{{{row}}}," for row in arguments(text, match.end() - 1)) + "}"
        rows = re.findall(r'\{\s*"([^"]+)",\s*([^{}]*?)\s*\}', body)
        tables[match[1]] = {name: numbers.get(value, int(value, 0) if value.isdigit() else None)
                            for name, value in rows}
    return tables


KINDS = {"PROP_READONLY": "read-only", "PROP_DEFAULT": "default", "PROP_INHERIT": "inherited",
         "PROP_ONETIME": "one-time", "PROP_ONETIME_DEFAULT": "one-time-default"}


def properties(tree, path, prefix):
    """Properties with their kind, and the values of those that are enumerations."""
    text = tree.code(path)
    numbers = {}
    for header in ("fs/zfs.h", "zio.h", "zio_compress.h", "dmu.h", "zfs_acl.h"):
        text_of_header = tree.code("include/sys/" + header)
        for start in re.findall(r"(?m)^(?:typedef )?enum\s*\w*(?=\s*\{)", text_of_header):
            numbers.update(enum(text_of_header, re.escape(start)))
    tables = index_tables(text, numbers)
    kinds, values = {}, {}
    names = defines(tree["include/sys/fs/zfs.h"], r"\w+_PROP_NAME")
    for _, given in calls(text, r"zprop_register_(?:number|string|index|hidden|impl)"):
        if len(given) < 5 or not given[0].startswith(prefix):
            continue
        name = unquoted(names.get(given[1], given[1]))
        kind = next((KINDS[word] for word in given if word in KINDS), None)
        kinds[name] = kind
        table = next((tables[word] for word in given if word in tables), {})
        if table and table.keys() != {"on", "off"}:
            values.update({f"{name}={value}": number for value, number in table.items()})
    # One macro call declares the figures of an allocation class.
    figures = re.findall(rf'{prefix.replace("ZPOOL_", "ZPOOL_MC_")}\w+, \\\s*#lprefix "(_\w+)"', tree[path])
    for _, given in calls(text, "zprop_register_mc_props"):
        if re.fullmatch("[A-Z]+", given[0]):
            kinds.update({f"class_{given[1]}{figure}": "read-only" for figure in figures})
    return kinds, values


def tunables(tree):
    found = {}
    for path in tree.below("module/", ".c"):
        if "/lua/" in path:
            continue
        text = tree.code(path)
        for _, given in calls(text, r"ZFS_MODULE(?:_VIRTUAL)?_PARAM(?:_CALL)?"):
            if len(given) >= 4 and re.fullmatch(r"\w*", given[1]) and re.fullmatch(r"\w+", given[2]):
                found[given[1] + given[2]] = None
        for _, given in calls(text, r"module_param(?:_call|_cb|_named)?"):
            if len(given) >= 3 and re.fullmatch(r"\w+", given[0]):
                found[given[0]] = None
    for page in ("man/man4/zfs.4", "man/man4/spl.4"):
        found.update({name: None for name in re.findall(r"(?m)^\.It Sy (\w+) Ns ", tree[page])})
    return found


# kstats whose names are compared one by one, with their table in C.
COUNTERS = {
    "arcstats": ("module/zfs/arc.c", "arc_stats"),
    "dmu_tx": ("module/zfs/dmu_tx.c", "dmu_tx_stats"),
    "zfetchstats": ("module/zfs/dmu_zfetch.c", "zfetch_stats"),
    "zil": ("module/zfs/zil.c", "zil_stats"),
    "objset": ("module/zfs/dataset_kstats.c", "empty_dataset_kstats"),
}


def kstats(tree):
    found = {}
    for path in tree.below("module/", ".c"):
        text = tree.code(path)
        for _, given in calls(text, "kstat_create"):
            # `name` is a pool's.
            if len(given) > 2 and given[2].startswith('"') and given[0] in ('"zfs"', "name"):
                found[("POOL/" if given[0] == "name" else "") + unquoted(given[2])] = None
        for _, given in calls(text, "procfs_list_install"):
            if len(given) > 3 and given[2].startswith('"'):
                found[("POOL/" if "spa_name" in given[1] else "") + unquoted(given[2])] = None
    return found


def counters(tree):
    found = {}
    for kstat, (path, variable) in COUNTERS.items():
        text = tree.code(path)
        begin = re.search(rf"\b{variable}\s*=\s*\{{", text)
        body = text[begin.start():text.index("};", begin.start())] if begin else ""
        found.update({f"{kstat}/{name}": None for name in re.findall(r'\{\s*"(\w+)",\s*KSTAT_DATA', body)})
    return found


def stream_features(tree):
    prefix = "DMU_BACKUP_FEATURE_"
    rows = defines(tree["include/sys/zfs_ioctl.h"], prefix)
    bits = {name[len(prefix):]: re.search(r"<<\s*(\d+)", value) for name, value in rows.items()}
    return {name: int(bit[1]) for name, bit in bits.items() if bit and name != "MASK"}


def object_types(tree):
    numbers = enum(tree.code("include/sys/dmu.h"), r"typedef enum dmu_object_type")
    old = {name[len("DMU_OT_"):]: number for name, number in numbers.items() if name.startswith("DMU_OT_")}
    count = old.pop("NUMTYPES", 0)
    return {name: number for name, number in old.items() if number < count}


def log_records(tree):
    rows = defines(tree["include/sys/zil.h"], "TX_")
    return {name: int(value) for name, value in rows.items() if value.isdigit() and name != "TX_MAX_TYPE"}


def attributes(tree):
    text = tree.code("module/zfs/zfs_sa.c")
    body = text[text.index("zfs_attr_table"):] if "zfs_attr_table" in text else ""
    rows = re.findall(r'\{"(\w+)",\s*([^,]+),', body)
    return {name: None for name, _ in rows}


def vdev_types(tree):
    names = defines(tree["include/sys/fs/zfs.h"], "VDEV_TYPE_").values()
    return {unquoted(name): None for name in names if '"' in name}


def keys(tree):
    """Names in the ZAPs of the MOS."""
    found = {}
    for header, prefix in (("dmu.h", "DMU_POOL_"), ("dsl_dir.h", "DD_FIELD_"), ("dsl_dataset.h", "DS_FIELD_"),
                           ("fs/zfs.h", "VDEV_TOP_ZAP_"), ("fs/zfs.h", "VDEV_LEAF_ZAP_"),
                           ("fs/zfs.h", "VDEV_ROOT_ZAP_"), ("dsl_crypt.h", "DSL_CRYPTO_KEY_")):
        for value in defines(tree["include/sys/" + header], prefix).values():
            literal = re.fullmatch(r'"([^"%]+)"', value)
            if literal:
                found[literal[1]] = None
    return found


def permissions(tree):
    text = tree.code("module/zcommon/zfs_deleg.c")
    names = defines(tree["include/sys/dsl_deleg.h"], "ZFS_DELEG_PERM_")
    start = text.find("zfs_deleg_perm_tab[]")
    used = re.findall(r"\{(ZFS_DELEG_PERM_\w+)\}", text[start:]) if start >= 0 else []
    return {unquoted(names[name]): None for name in used if name in names}


def activities(tree):
    found = {}
    for tool, path in (("zfs", "cmd/zfs/zfs_main.c"), ("zpool", "cmd/zpool/zpool_main.c")):
        text = tree.code(path)
        body = text[max(text.find(f"{tool}_do_wait(int argc, char **argv)\n{{"), 0):]
        table = re.search(r"col_(?:sub)?opts\[[^]]*\]\s*=\s*\{([^}]*)\}", body)
        names = re.findall(r'"(\w+)"', table[1]) if table else []
        found.update({f"{tool} wait -t {name}": None for name in names})
    return found


def all_items(tree):
    """Every table by the name of its items."""
    dataset, dataset_values = properties(tree, "module/zcommon/zfs_prop.c", "ZFS_PROP_")
    pool, pool_values = properties(tree, "module/zcommon/zpool_prop.c", "ZPOOL_PROP_")
    vdev, _ = properties(tree, "module/zcommon/zpool_prop.c", "VDEV_PROP_")
    known = verbs.of(tree)
    return {
        "feature": features(tree),
        "dataset-property": dataset,
        "pool-property": pool,
        "vdev-property": dict.fromkeys(vdev),
        "value": {**dataset_values, **pool_values},
        "verb": dict.fromkeys(known),
        "option": {f"{verb} {option}": None for verb, options in known.items() for option in options},
        "activity": activities(tree),
        "permission": permissions(tree),
        "tunable": tunables(tree),
        "kstat": kstats(tree),
        "counter": counters(tree),
        "stream-feature": stream_features(tree),
        "object-type": object_types(tree),
        "log-record": log_records(tree),
        "attribute": attributes(tree),
        "vdev-type": vdev_types(tree),
        "mos-key": keys(tree),
    }
