// The caches of all pools: hits and misses as they happen, what is kept, cache devices.

import { watch } from "./api.js";
import { bar, bytes, count, facts, make } from "./dom.js";

export async function cache(_, signal) {
  const place = make("div", {}, make("p", {}, "Measuring…"));
  // The first report is of all that was, each further one of what passed since the one before.
  let total = null;
  watch("arcstat", { schedule: ["1"] }, ({ caches }) => {
    if (!caches) return;
    const lately = total ? caches.total : null;
    total = total ? sum(total, lately) : caches.total;
    place.replaceChildren(...panels(caches.total, total, lately));
  }, signal);
  return [make("h1", {}, "Cache"), place];
}

/** The counts of hits and misses of both. */
function sum(one, other) {
  const added = { ...other };
  for (const kind of ["data", "metadata"]) {
    added[kind] = { ...other[kind], hits: one[kind].hits + other[kind].hits, misses: one[kind].misses + other[kind].misses };
  }
  return added;
}

function panels(now, total, recent) {
  const part = (hits, misses) => (hits + misses ? `${((100 * hits) / (hits + misses)).toFixed(1)} %` : "no reads");
  const kinds = [["Data", "data"], ["Metadata", "metadata"]].map(([title, kind]) => {
    const { hits, misses, content_bytes: content } = total[kind];
    const lately = recent ? [recent[kind].hits, recent[kind].misses] : [0, 0];
    return make("section", { class: "card", "aria-label": title }, make("h2", {}, title), facts([
      ["Found, in the last second", part(...lately)], ["Found, since the start", part(hits, misses)],
      ["Reads in the last second", count(lately[0] + lately[1])], ["Kept", bytes(content)],
    ]));
  });
  const l2 = now.l2 ?? {};
  const devices = l2.l2_devices ? make("section", { class: "card", "aria-label": "Cache devices" }, make("h2", {}, "Cache devices"), facts([
    ["Devices", count(l2.l2_devices)], ["Blocks on them", count(l2.l2_bufs)], ["Bytes on them", bytes(l2.l2_asize)],
    ["Found there", part(l2.l2_hits, l2.l2_misses)], ["Memory for them", bytes(l2.l2_hdr_size)], ["Written", bytes(l2.l2_write_bytes)],
  ])) : null;
  const prefetch = now.prefetch;
  return [
    make("section", { class: "card", "aria-label": "Memory" }, make("h2", {}, "Memory"),
      make("p", {}, `${bytes(now.bytes)} of at most ${bytes(now.budget_bytes)}, ${count(now.blocks)} blocks`), bar(now.bytes / now.budget_bytes, "Memory used")),
    ...kinds, devices,
    make("section", { class: "card", "aria-label": "Prefetch" }, make("h2", {}, "Read ahead"), facts([
      ["Used", count(prefetch.used)], ["Wasted", count(prefetch.wasted)], ["Under way", bytes(prefetch.active_bytes)], ["Streams met", count(prefetch.hits)],
    ])),
  ].filter(Boolean);
}
