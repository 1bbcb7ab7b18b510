"""Cenote's tables, read from its Rust sources, in the form of `theirs`."""
import pathlib
import re

from . import rust


def read(root, path):
    return (pathlib.Path(root) / path).read_text()


def table(text, name):
    """The text between the outermost brackets of `static NAME: ... = [...]`."""
    found = re.search(rf"\b(?:static|const) {name}\b[^=]*=\s*&?[\[(]", text)
    if not found:
        return ""
    depth, at = 1, found.end()
    while depth and at < len(text):
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(text[at], 0)
        at += 1
    return text[found.end():at - 1]


def features(root):
    text = read(root, "crates/format/src/features.rs")
    names = dict(re.findall(r'const (\w+): &str = "(\w+)";', text))
    flags = {"RO": "read-only-compatible", "MOS": "mos", "ACTIVATE": "activates", "DATASET": "per-dataset",
             "NO_UPGRADE": "no-upgrade"}
    found = {}
    for guid, name, bits, needs in re.findall(
            r'feature\(\s*"([^"]+)",\s*("?\w+"?),\s*([\w| ]+),\s*&\[([^\]]*)\]', table(text, "SPA_FEATURES")):
        name = names.get(name, name.strip('"'))
        traits = {flags[f] for f in re.findall(r"[A-Z_]+", bits)}
        needed = {names.get(n.strip(), n.strip().strip('"')) for n in needs.split(",") if n.strip()}
        found[guid] = " ".join([name] + sorted(traits) + sorted(f"needs:{n}" for n in needed))
    return found


KINDS = {"ReadOnly": "read-only", "Default": "default", "Inherit": "inherited", "OneTime": "one-time",
         "OneTimeDefault": "one-time-default"}


def number(text):
    """A value of index.rs; expressions are not evaluated."""
    return int(text, 0) if re.fullmatch(r"(0x)?[0-9a-fA-F]+", text) else None


def properties(root, path):
    index = read(root, "crates/format/src/props/index.rs")
    kinds, values = {}, {}
    for function, rest in re.findall(r"\b(number|string|index)\(([^;\n]*)\)", read(root, path)):
        words = [word.strip() for word in rest.rstrip(")").split(",")]
        name = words[0].strip('"')
        kinds[name] = KINDS[words[2]]
        if function == "index" and words[-1] != "BOOLEAN":
            rows = re.findall(r'\("([^"]+)",\s*([^()]+(?:\([^)]*\))?)\)', table(index, words[-1]))
            values.update({f"{name}={value}": number(n) for value, n in rows})
    return kinds, values


def words_of(root, path, name):
    return dict.fromkeys(re.findall(r'"([^"]+)"', table(read(root, path), name)))


def vdev_properties(root):
    text = read(root, "crates/control/src/zpool/shown/vdev_properties.rs")
    found = re.search(r'const ALL: &str = "(.*?)";', text, re.S)
    return dict.fromkeys(found[1].replace("\\\n", " ").split() if found else ())


def tunables(root):
    found = {}
    for path in sorted((pathlib.Path(root) / "crates").rglob("*.rs")):
        if "tests" in path.parts or not re.search(r"/(pool|engine|cache|l2arc)/src/", str(path)):
            continue
        text = path.read_text()
        for name in re.findall(r"const (\w+): \[Tunable;", text):
            found.update(dict.fromkeys(re.findall(r'\(\s*"(\w+)"', table(text, name))))
    own = read(root, "crates/host/src/tuning.rs")
    found.update(dict.fromkeys(re.findall(r'pub const \w+: &str = "(\w+)";', own)))
    return found


def kstats(root):
    text = read(root, "crates/host/src/kstat.rs")
    all_pools = re.findall(r'"(\w+)"', re.search(r"const OF_ALL[^=]*= \[([^\]]*)\]", text)[1])
    of_pool = re.findall(r'"(\w+)"', re.search(r"const OF_POOL[^=]*= \[([^\]]*)\]", text)[1])
    return dict.fromkeys(all_pools + ["POOL/" + name for name in of_pool])


def counters(root):
    engine = "crates/engine/src/kstat.rs"
    tables = {
        "arcstats": words_of(root, "crates/host/src/kstat/arcstats.rs", "NAMES"),
        "dmu_tx": words_of(root, engine, "DMU_TX"),
        "zil": words_of(root, engine, "ZIL"),
        "objset": {"dataset_name": None, **words_of(root, "crates/object/src/traffic.rs", "NAMES")},
    }
    zfetch = read(root, "crates/host/src/kstat/arcstats.rs")
    zfetch = zfetch[zfetch.index("fn zfetch("):]
    tables["zfetchstats"] = dict.fromkeys(re.findall(r'\("(\w+)", sum', zfetch))
    return {f"{kstat}/{name}": None for kstat, names in tables.items() for name in names}


def stream_features(root):
    text = read(root, "crates/format/src/stream/flags.rs")
    body = text[text.index("StreamFeatures(u64):"):]
    body = body[:body.index("\n}")]
    return {name: int(bit) for name, bit in re.findall(r"(\w+) = (\d+);", body)}


def object_types(root):
    text = read(root, "crates/format/src/dnode/object_type.rs")
    rows = re.findall(r"^\((\w+), (?:META|DATA), ", text[text.index("object_types! {"):], re.M)
    return {name: number for number, name in enumerate(rows)}


def log_records(root):
    names = list(dict.fromkeys(re.findall(r'"(TX_\w+)"', read(root, "crates/format/src/zil/record.rs"))))
    return {name: number for number, name in enumerate(names)}


def attributes(root):
    return dict.fromkeys(re.findall(r'"(ZPL_\w+)"', read(root, "crates/format/src/sa/zpl_attr.rs")))


def vdev_types(root):
    kinds = read(root, "crates/format/src/label/vdev_kind.rs")
    return dict.fromkeys(re.findall(r'\(VdevKind::\w+, "(\w+)"\)', kinds))


def keys(root):
    names = read(root, "crates/format/src/dsl/names.rs")
    own = re.findall(r'pub const \w+: &str = "([^"]+)";', names)
    return dict.fromkeys(own)


def permissions(root):
    return words_of(root, "crates/format/src/deleg.rs", "PERMISSIONS")


def activities(root):
    found = {}
    for tool in ("zfs", "zpool"):
        for path in sorted((pathlib.Path(root) / f"crates/control/src/{tool}").rglob("wait.rs")):
            for names in re.findall(r'\("(\w+)", Activity::|Activity::\w+ => "(\w+)"', path.read_text()):
                found[f"{tool} wait -t {''.join(names)}"] = None
    return found


def all_items(root):
    dataset, dataset_values = properties(root, "crates/format/src/props/dataset.rs")
    pool, pool_values = properties(root, "crates/format/src/props/pool.rs")
    known = rust.verbs(root)
    return {
        "feature": features(root),
        "dataset-property": dataset,
        "pool-property": pool,
        "vdev-property": vdev_properties(root),
        "value": {**dataset_values, **pool_values},
        "verb": dict.fromkeys(known),
        "option": {f"{verb} {option}": None for verb, options in known.items() for option in options},
        "activity": activities(root),
        "permission": permissions(root),
        "tunable": tunables(root),
        "kstat": kstats(root),
        "counter": counters(root),
        "stream-feature": stream_features(root),
        "object-type": object_types(root),
        "log-record": log_records(root),
        "attribute": attributes(root),
        "vdev-type": vdev_types(root),
        "mos-key": keys(root),
    }
