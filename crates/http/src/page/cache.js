// The caches of all pools: hits and misses as they happen, what is kept, cache devices.

import { watch } from "./api.js";
import { bar, bytes, count, facts, make } from "./dom.js";

export async function cache(_, signal) {
  const place = make("div", {}, make("p", {}, "Measuring…"));
  watch("arcstat", {}, (pools, before) => {
    if (pools.length) place.replaceChildren(...panels(sum(pools), before && sum(before)));
  }, signal);
  return [make("h1", {}, "Cache"), place];
}

/** The caches of all pools together. */
function sum(pools) {
  const add = (one, other) => Object.fromEntries(Object.entries(other).map(([name, value]) => [name,
    typeof value === "number" ? (one?.[name] ?? 0) + value : value && !Array.isArray(value) && typeof value === "object" ? add(one?.[name], value) : value]));
  return pools.reduce((all, { stats, second }) => add(all, { stats, second }), null);
}

function panels({ stats: now, second: l2 }, before) {
  const part = (hits, misses) => (hits + misses ? `${((100 * hits) / (hits + misses)).toFixed(1)} %` : "no reads");
  const kinds = [["Data", "data"], ["Metadata", "metadata"]].map(([title, kind]) => {
    const { hits, misses, content_bytes: content } = now[kind];
    const lately = ["hits", "misses"].map((name) => (before ? now[kind][name] - before.stats[kind][name] : 0));
    return make("section", { class: "card", "aria-label": title }, make("h2", {}, title), facts([
      ["Found, in the last second", part(...lately)], ["Found, since the start", part(hits, misses)],
      ["Reads in the last second", count(lately[0] + lately[1])], ["Kept", bytes(content)],
    ]));
  });
  const devices = l2.devices ? make("section", { class: "card", "aria-label": "Cache devices" }, make("h2", {}, "Cache devices"), facts([
    ["Devices", count(l2.devices)], ["Blocks on them", count(l2.bufs)], ["Bytes on them", bytes(l2.asize)],
    ["Found there", part(l2.hits, l2.misses)], ["Memory for them", bytes(l2.hdr_size)], ["Written", bytes(l2.write_bytes)],
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
