// All pools: state, space, what scans do, and the live traffic of each vdev.

import { action } from "./action.js";
import { look, watch } from "./api.js";
import { bar, bytes, count, date, facts, make, span, state, time, values } from "./dom.js";
import { review, summary } from "./health.js";

const SAMPLES = 90;

export async function pools(_, signal) {
  const [{ pools: status, waiting }, { pools: space }] = await Promise.all([
    look("zpool/status", {}, signal), look("zpool/list", {}, signal),
  ]);
  const waits = waiting.map(({ name, why, seconds }) => make("section", { class: "card", "aria-label": `Pool ${name}` },
    make("div", { class: "row" }, make("h2", {}, name), state("UNAVAIL")),
    make("p", { class: "warn" }, `It does not open, and the daemon has tried for ${span(seconds)}: ${why}`)));
  if (!status.length && !waits.length) {
    return [make("h1", {}, "Pools"), make("p", {}, "No pool is open. ", make("code", {}, "cenote zpool import"), " lists those on the disks.")];
  }
  const properties = new Map(space.map(({ head, properties }) => [head.name, values(properties)]));
  const cards = status.map((pool) => card(pool, properties.get(pool.name) ?? {}));
  watch("zpool/iostat", {}, (now, before, seconds) => cards.forEach((card) => {
    const of = (all) => all?.find(({ pool }) => pool === card.name);
    if (of(now) && of(before)) card.traffic(of(now), of(before), seconds);
  }), signal);
  const refresh = setInterval(async () => {
    const { pools: now } = await look("zpool/status", {}, signal);
    cards.forEach((card) => now.filter(({ name }) => name === card.name).forEach(card.status));
  }, 3000);
  signal.addEventListener("abort", () => clearInterval(refresh));
  review(signal, 60000).then((found) => cards.forEach((card) => card.advice(summary(found, card.name))));
  return [make("h1", {}, "Pools"), ...cards.map((card) => card.element), ...waits];
}

const STATES = { online: "ONLINE", degraded: "DEGRADED", faulted: "FAULTED", offline: "OFFLINE", removed: "REMOVED", unavailable: "UNAVAIL" };
const shownState = ({ standstill, root }) => (standstill ? "SUSPENDED" : STATES[root.state]);

function card(first, properties) {
  const { name } = first;
  const badge = make("span"), scan = make("div"), trouble = make("div"), advised = make("div");
  const trend = makeTrend();
  const cells = new Map();
  const vdevs = make("tbody", {}, rows(first.health, cells));
  const heads = ["Device", "State", "Errors", "Reads/s", "Writes/s", "Read", "Write", "Read wait", "Write wait"];
  const head = make("tr", {}, heads.map((text, at) => make("th", { scope: "col", class: at > 1 ? "number" : null }, text)));
  const status = ({ health, reason, opened }) => {
    badge.replaceChildren(state(shownState(health)));
    scan.replaceChildren(...scanOf(name, opened?.work));
    const said = reason ? `${reason.status} ${reason.action}` : "";
    const errors = opened?.data_errors ?? 0;
    trouble.replaceChildren(...(said || errors
      ? [make("p", { class: "warn" }, [said, errors ? `${count(errors)} data errors.` : ""].join(" "))] : []));
    update(health, cells);
  };
  status(first);
  const { size, allocated: used, free, fragmentation, dedupratio } = properties;
  const element = make("section", { class: "card", "aria-label": `Pool ${name}` },
    make("div", { class: "row" }, make("h2", {}, make("a", { href: `#/dataset/${encodeURIComponent(name)}` }, name)), badge,
      make("span", { class: "push" }),
      action("Scrub", { line: `zpool scrub ${name}`, verb: "zpool/scrub", request: { pools: [name] } })),
    trouble, advised,
    facts([
      ["Used", make("span", {}, `${bytes(used)} of ${bytes(size)}`, bar(used / size, "Space used"))],
      ["Free", bytes(free)],
      ["Fragmentation", `${fragmentation ?? "–"} %`],
      ["Dedup", `${((dedupratio ?? 100) / 100).toFixed(2)} ×`],
    ]),
    scan, trend.element,
    make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Devices of ${name}` },
      make("table", { "aria-label": `Devices of ${name}` }, make("thead", {}, head), vdevs)));
  const traffic = (now, before, seconds) => {
    for (const [guid, of] of Object.entries(now.traffic)) {
      const [read, write] = ["read", "write"].map((kind) => rates(of[kind], before.traffic[guid]?.[kind], seconds));
      if (guid === String(now.health.root.guid)) trend.add(read.bytes, write.bytes);
      const shown = [count(read.operations), count(write.operations), `${bytes(read.bytes)}/s`, `${bytes(write.bytes)}/s`, time(read.wait), time(write.wait)];
      cells.get(guid)?.traffic.forEach((cell, at) => { cell.textContent = shown[at]; });
    }
  };
  const advice = (words) => advised.replaceChildren(...(words
    ? [make("p", {}, "Advice: ", make("a", { href: "#/health" }, words))] : []));
  return { name, element, status, traffic, advice };
}

/** Operations and bytes a second, and the mean time of one, from two counts. */
function rates(now, before = { operations: 0, bytes: 0, busy_ns: 0 }, seconds) {
  const [operations, of, busy] = ["operations", "bytes", "busy_ns"].map((kind) => now[kind] - before[kind]);
  return { operations: Math.round(operations / seconds), bytes: of / seconds, wait: operations ? busy / operations : null };
}

/** Calls `each(vdev, depth, isSpare)` for all vdevs of a pool, in the order of `zpool status`. */
function walk({ root, l2cache, spares }, each) {
  const down = (vdevs, depth, isSpare) => vdevs.filter(({ kind }) => !["hole", "indirect"].includes(kind)).forEach((vdev) => {
    each(vdev, depth, isSpare);
    down(vdev.children, depth + 1, isSpare);
  });
  const data = root.children.filter((top) => top.class === "normal");
  const special = root.children.filter((top) => top.class !== "normal");
  each(root, 0, false);
  down([...data, ...special, ...l2cache], 1, false);
  down(spares, 1, true);
}

const errorsOf = ({ errors: { read, write, checksum } }) => [read, write, checksum].map(count).join(" / ");

function stateOf(vdev, isSpare) {
  if (isSpare && vdev.trouble === "in_use") return "INUSE";
  return isSpare && vdev.state === "online" ? "AVAIL" : STATES[vdev.state];
}

function rows(health, cells) {
  const made = [];
  walk(health, (vdev, depth) => {
    const label = make("th", { scope: "row" }, vdev.name, vdev.class === "normal" || depth !== 1 ? "" : ` (${vdev.class})`);
    label.style.paddingInlineStart = `${0.6 + depth}rem`;
    const traffic = Array.from({ length: 6 }, () => make("td", { class: "number" }, "–"));
    const row = { state: make("td"), errors: make("td", { class: "number", title: "read / write / checksum" }), traffic };
    cells.set(String(vdev.guid), row);
    made.push(make("tr", {}, label, row.state, row.errors, traffic));
  });
  return made;
}

function update(health, cells) {
  walk(health, (vdev, _, isSpare) => {
    const row = cells.get(String(vdev.guid));
    row?.state.replaceChildren(state(vdev === health.root ? shownState(health) : stateOf(vdev, isSpare)));
    if (row) row.errors.textContent = errorsOf(vdev);
  });
}

const SCANS = { 1: "Scrub", 2: "Resilver" }, SCAN_STATES = { 1: "running", 2: "finished", 3: "canceled" };

function scanOf(name, work) {
  const { scan, pace } = work ?? {};
  const what = SCANS[scan?.func];
  if (!what) return [];
  if (SCAN_STATES[scan.state] === "running") {
    const all = Math.max(1, scan.to_examine_bytes - scan.skipped_bytes);
    const part = Math.min(1, scan.examined_bytes / all);
    const left = pace?.done_bytes ? ((1 - part) * all * pace.seconds) / pace.done_bytes : Infinity;
    const order = (label, letter) => action(label, { line: `zpool scrub -${letter} ${name}`, verb: "zpool/scrub", request: { pools: [name], order: label.toLowerCase() } });
    return [make("div", { class: "row" }, make("span", {}, `${what}: ${(part * 100).toFixed(1)} %, ${span(left)} left, ${count(scan.errors)} errors`),
      make("span", { class: "push" }), ...(what === "Scrub" ? [order("Pause", "p"), order("Stop", "s")] : [])), bar(part, what)];
  }
  const end = scan.end_time_s;
  return [make("p", { class: "faint" }, `${what} ${SCAN_STATES[scan.state] ?? "unknown"}${end ? `, ${date(end)}` : ""}: ${count(scan.errors)} errors, ${bytes(scan.processed_bytes)} repaired`)];
}

/** The last minutes of reads and writes. */
function makeTrend() {
  const read = make("path", { class: "read" }), write = make("path", { class: "write" });
  const svg = make("svg", { class: "trend", viewBox: `0 0 ${SAMPLES} 40`, preserveAspectRatio: "none", "aria-hidden": true }, read, write);
  const label = make("p", { class: "faint" }, "Measuring…");
  const samples = [];
  const add = (reads, writes) => {
    samples.push([reads, writes]);
    if (samples.length > SAMPLES) samples.shift();
    const most = Math.max(1, ...samples.flat());
    const line = (at) => samples.map((sample, x) => `${x ? "L" : "M"}${x} ${39 - (38 * sample[at]) / most}`).join("");
    read.setAttribute("d", line(0));
    write.setAttribute("d", line(1));
    label.textContent = `Reads ${bytes(reads)}/s, writes ${bytes(writes)}/s; at most ${bytes(most)}/s in the last ${samples.length} s`;
  };
  return { element: make("div", {}, svg, label), add };
}
