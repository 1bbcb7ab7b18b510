// All pools: state, space, what scans do, and the live traffic of each vdev.

import { action } from "./action.js";
import { look, watch } from "./api.js";
import { bar, bytes, count, date, facts, make, span, state, time } from "./dom.js";
import { review, summary } from "./health.js";

const SAMPLES = 90;

export async function pools(_, signal) {
  const [{ pools: status = {} }, { pools: space = {} }] = await Promise.all([
    look("zpool/status", { "json-int": true, parsable: true }, signal),
    look("zpool/list", { "json-int": true, parsable: true }, signal),
  ]);
  const names = Object.keys(status);
  if (!names.length) {
    return [make("h1", {}, "Pools"), make("p", {}, "No pool is open. ", make("code", {}, "cenote zpool import"), " lists those on the disks.")];
  }
  const cards = names.map((name) => card(name, status[name], space[name]?.properties ?? {}, signal));
  watch("zpool/iostat", { verbose: true, pools: ["1"] }, ({ pools: now }) => {
    cards.forEach((card) => now[card.name] && card.traffic(now[card.name]));
  }, signal);
  const refresh = setInterval(async () => {
    const { pools: now = {} } = await look("zpool/status", { "json-int": true, parsable: true }, signal);
    cards.forEach((card) => now[card.name] && card.status(now[card.name]));
  }, 3000);
  signal.addEventListener("abort", () => clearInterval(refresh));
  review(signal, 60000).then((found) => cards.forEach((card) => card.advice(summary(found, card.name))));
  return [make("h1", {}, "Pools"), ...cards.map((card) => card.element)];
}

function card(name, first, properties, signal) {
  const value = (property) => properties[property]?.value;
  const size = Number(value("size")), used = Number(value("allocated"));
  const badge = make("span"), scan = make("div"), trouble = make("div"), advised = make("div");
  const trend = makeTrend();
  const cells = new Map();
  const vdevs = make("tbody", {}, rows(first, name, cells));
  const heads = ["Device", "State", "Errors", "Reads/s", "Writes/s", "Read", "Write", "Read wait", "Write wait"];
  const head = make("tr", {}, heads.map((text, at) => make("th", { scope: "col", class: at > 1 ? "number" : null }, text)));
  const status = (now) => {
    badge.replaceChildren(state(now.state));
    scan.replaceChildren(...scanOf(name, now.scan_stats));
    const said = [now.status, now.action].filter(Boolean).join(" ");
    const errors = Number(now.error_count ?? 0);
    trouble.replaceChildren(...(said || errors
      ? [make("p", { class: "warn" }, [said, errors ? `${count(errors)} data errors.` : ""].join(" "))] : []));
    update(now, name, cells);
  };
  status(first);
  const element = make("section", { class: "card", "aria-label": `Pool ${name}` },
    make("div", { class: "row" }, make("h2", {}, make("a", { href: `#/dataset/${encodeURIComponent(name)}` }, name)), badge,
      make("span", { class: "push" }),
      action("Scrub", { line: `zpool scrub ${name}`, command: "zpool/scrub", fields: { pools: [name] } })),
    trouble, advised,
    facts([
      ["Used", make("span", {}, `${bytes(used)} of ${bytes(size)}`, bar(used / size, "Space used"))],
      ["Free", bytes(value("free"))],
      ["Fragmentation", `${value("fragmentation") ?? "–"} %`],
      ["Dedup", `${Number(value("dedupratio") ?? 1).toFixed(2)} ×`],
    ]),
    scan, trend.element,
    make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Devices of ${name}` },
      make("table", { "aria-label": `Devices of ${name}` }, make("thead", {}, head), vdevs)));
  const traffic = (now) => {
    trend.add(now.read.bytes_per_second, now.write.bytes_per_second);
    const show = (vdev) => {
      const row = cells.get(vdev.name);
      if (!row || !vdev.read) return;
      const { read, write } = vdev;
      row.traffic.forEach((cell, at) => { cell.textContent = [
        count(read.operations_per_second), count(write.operations_per_second),
        `${bytes(read.bytes_per_second)}/s`, `${bytes(write.bytes_per_second)}/s`,
        time(read.average_wait_ns), time(write.average_wait_ns)][at]; });
    };
    show(now);
    now.vdevs?.forEach(show);
  };
  const advice = (words) => advised.replaceChildren(...(words
    ? [make("p", {}, "Advice: ", make("a", { href: "#/health" }, words))] : []));
  return { name, element, status, traffic, advice };
}

const GROUPS = ["vdevs", "special", "dedup", "logs", "l2cache", "spares"];

/** Calls `each(vdev, depth)` for all vdevs of a pool as `zpool status` has them. */
function walk(pool, each) {
  const down = (vdevs, depth) => Object.values(vdevs ?? {}).forEach((vdev) => {
    each(vdev, depth);
    down(vdev.vdevs, depth + 1);
  });
  GROUPS.forEach((group) => down(pool[group], group === "vdevs" ? 0 : 1));
}

const errors = (vdev) => [vdev.read_errors, vdev.write_errors, vdev.checksum_errors].map((n) => count(n)).join(" / ");

function rows(pool, name, cells) {
  const made = [];
  walk(pool, (vdev, depth) => {
    const label = make("th", { scope: "row" }, vdev.name);
    label.style.paddingInlineStart = `${0.6 + depth}rem`;
    const traffic = Array.from({ length: 6 }, () => make("td", { class: "number" }, "–"));
    const row = { state: make("td"), errors: make("td", { class: "number", title: "read / write / checksum" }), traffic };
    cells.set(vdev.name, row);
    made.push(make("tr", {}, label, row.state, row.errors, traffic));
  });
  return made;
}

function update(pool, name, cells) {
  walk(pool, (vdev) => {
    const row = cells.get(vdev.name);
    row?.state.replaceChildren(state(vdev.state));
    if (row) row.errors.textContent = errors(vdev);
  });
}

function scanOf(name, scan) {
  if (!scan) return [];
  const what = scan.function === "SCRUB" ? "Scrub" : "Resilver";
  const number = (value) => Number(value ?? 0);
  if (scan.state === "SCANNING") {
    const part = number(scan.issued) / Math.max(1, number(scan.to_examine) - number(scan.skipped));
    const seconds = Date.now() / 1000 - number(scan.pass_start ?? scan.start_time);
    const left = part > 0 ? (seconds / part) * (1 - part) : Infinity;
    const stop = action("Stop", { line: `zpool scrub -s ${name}`, command: "zpool/scrub", fields: { pools: [name], stop: true } });
    const pause = action("Pause", { line: `zpool scrub -p ${name}`, command: "zpool/scrub", fields: { pools: [name], pause: true } });
    return [make("div", { class: "row" }, make("span", {}, `${what}: ${(part * 100).toFixed(1)} %, ${span(left)} left, ${count(scan.errors)} errors`),
      make("span", { class: "push" }), ...(what === "Scrub" ? [pause, stop] : [])), bar(part, what)];
  }
  const end = number(scan.end_time);
  return [make("p", { class: "faint" }, `${what} ${String(scan.state).toLowerCase()}${end ? `, ${date(end)}` : ""}: ${count(scan.errors)} errors, ${bytes(scan.processed ?? 0)} repaired`)];
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
