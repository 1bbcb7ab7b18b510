// One dataset: its snapshots on a line of time, its space, its properties.

import { action } from "./action.js";
import { look, mayChange, run } from "./api.js";
import { bytes, count, date, facts, longTable, make, ratio, values } from "./dom.js";

/** Parts of the line of time. */
const PARTS = 160;

export async function dataset(name, signal) {
  const snapshotsOf = { names: [name], scope: { types: { snapshots: true }, depth: 1 }, properties: ["creation", "used", "referenced", "written"] };
  const [{ datasets: [own] }, { datasets: found }] = await Promise.all([
    look("zfs/get", { names: [name], scope: { types: { filesystems: true, volumes: true }, depth: 0 } }, signal),
    look("zfs/list", snapshotsOf, signal),
  ]);
  const of = values(own.properties);
  const snapshots = found.map(({ name: full, createtxg: txg, properties }) => {
    const { creation: at, used, referenced, written } = values(properties);
    return { full, label: full.split("@")[1], at, txg, used, referenced, written };
  }).sort((one, other) => other.txg - one.txg);
  const again = () => dispatchEvent(new HashChangeEvent("hashchange"));
  const stamp = new Date().toISOString().slice(0, 19).replace("T", "_").replaceAll(":", "");
  const now = `${name}@${stamp}`;
  const live = hasFiles(own.kind) ? make("a", { href: browseLink(name, "/") }, "Browse files") : null;
  return [
    make("h1", {}, name),
    make("section", { class: "card", "aria-label": "Space" },
      make("div", { class: "row" }, make("h2", {}, own.kind === "volume" ? "Volume" : "File system"), live, make("span", { class: "push" }),
        action("Take snapshot", { line: `zfs snapshot ${now}`, verb: "zfs/snapshot", request: { snapshots: [now] }, done: again })),
      facts([
        ["Used", bytes(of.used)], ["Available", bytes(of.available)], ["By itself", bytes(of.usedbydataset)],
        ["By snapshots", bytes(of.usedbysnapshots)], ["By those below", bytes(of.usedbychildren)],
        ["Compression", `${ratio(of.compressratio)}, ${of.compression}`],
      ])),
    snapshotList(name, own.kind, snapshots, again),
    propertyList(own.properties),
  ];
}

/** Whether there are files that this token may see. */
const hasFiles = (kind) => kind !== "volume" && mayChange();

const browseLink = (dataset, path) => `#/browse/${encodeURIComponent(`${dataset}:${path}`)}`;

function snapshotList(name, kind, all, again) {
  const place = make("div"), said = make("span", { class: "faint" });
  const heads = [["Snapshot"], ["Taken"], ["Its own", "number"], ["Written", "number optional"], ["Referenced", "number optional"], ["Actions"]];
  const destroy = ({ full }) => action("Destroy", {
    line: `zfs destroy ${full}`, verb: "zfs/destroy", request: { target: full }, danger: true, done: again,
    before: async () => {
      const { answer, words } = await run("zfs/destroy", { target: full, dry_run: true, measure: true });
      const frees = answer.reclaim_bytes === null ? "" : `\nfrees ${bytes(answer.reclaim_bytes)}`;
      return [`destroys ${[...answer.names, ...answer.clones].join(", ")}${frees}`, words].filter(Boolean).join("\n");
    },
  });
  const row = (snapshot) => [
    make("th", { scope: "row" }, hasFiles(kind) ? make("a", { href: browseLink(snapshot.full, "/") }, snapshot.label) : snapshot.label),
    make("td", {}, date(snapshot.at)), make("td", { class: "number" }, bytes(snapshot.used)),
    make("td", { class: "number optional" }, bytes(snapshot.written)), make("td", { class: "number optional" }, bytes(snapshot.referenced)),
    make("td", {}, destroy(snapshot)),
  ];
  const show = (snapshots, words) => {
    said.textContent = words ?? `${count(snapshots.length)} in all`;
    place.replaceChildren(longTable(`Snapshots of ${name}`, heads, snapshots, row));
  };
  show(all);
  const card = make("section", { class: "card", "aria-label": "Snapshots" }, make("div", { class: "row" }, make("h2", {}, "Snapshots"), said));
  if (all.length > 1) card.append(timeline(all, show));
  card.append(all.length ? place : make("p", { class: "faint" }, "There are none."));
  return card;
}

/** How many were taken when: bars from the oldest to the newest. A part that is chosen is listed alone. */
function timeline(all, show) {
  const first = all.at(-1).at, last = Math.max(all[0].at, first + 1);
  const part = ({ at }) => Math.min(PARTS - 1, Math.floor(((at - first) / (last - first)) * PARTS));
  const counts = new Array(PARTS).fill(0);
  all.forEach((snapshot) => { counts[part(snapshot)] += 1; });
  const most = Math.max(...counts);
  const bars = counts.map((number, at) => number && make("rect",
    { x: at, y: 30 - (28 * number) / most, width: 0.8, height: (28 * number) / most },
    make("title", {}, `${number}, until ${date(first + ((at + 1) / PARTS) * (last - first))}`))).filter(Boolean);
  const svg = make("svg", { class: "times", viewBox: `0 0 ${PARTS} 30`, preserveAspectRatio: "none", "aria-hidden": true }, bars);
  const range = make("input", { type: "range", min: 0, max: PARTS, value: PARTS, "aria-label": "Show snapshots up to this time" });
  range.style.width = "100%";
  range.addEventListener("input", () => {
    const until = Number(range.value);
    const chosen = all.filter((snapshot) => part(snapshot) < until);
    show(chosen, until < PARTS ? `${count(chosen.length)} until ${date(first + (until / PARTS) * (last - first))}` : undefined);
  });
  return make("div", {}, svg, range, make("div", { class: "row faint" }, make("span", {}, date(first)), make("span", { class: "push" }, date(last))));
}

function propertyList(properties) {
  const where = (source) => (source.inherited ? `from ${source.inherited}` : source === "none" ? "–" : source);
  const shown = ({ name, value, word }) => word ?? value.text ?? (name.endsWith("ratio") ? ratio(value.number) : value.number);
  const rows = properties.map((property) => make("tr", {}, make("th", { scope: "row" }, property.name),
    make("td", {}, shown(property)), make("td", { class: "faint" }, where(property.source))));
  const heads = ["Property", "Value", "Source"].map((text) => make("th", { scope: "col" }, text));
  return make("details", { class: "card" }, make("summary", {}, `${rows.length} properties`),
    make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Properties" },
      make("table", { "aria-label": "Properties" }, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, rows))));
}
