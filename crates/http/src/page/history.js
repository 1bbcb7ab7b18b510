// What was done to the pools: their history, newest first.

import { look } from "./api.js";
import { date, longTable, make } from "./dom.js";

export async function history(_, signal) {
  const pools = await look("zpool/history", {}, signal);
  // A record is a list of pairs, each value by its type; internal ones are shown by `zpool history -i`.
  const plain = ({ pairs }) => Object.fromEntries(pairs.map(([name, value]) => [name, Object.values(value)[0]]));
  const all = pools.flatMap(({ pool, records }) => records.map((record, at) => ({ pool, record: plain(record), at })))
    .filter(({ record }) => record["history command"]);
  all.sort((one, other) => other.record["history time"] - one.record["history time"] || other.at - one.at);
  const heads = [["When"], ["Pool", "optional"], ["Command"], ["Host", "optional"]];
  const row = ({ pool, record }) => [
    make("td", {}, date(record["history time"])), make("td", { class: "optional" }, pool),
    make("td", {}, make("code", {}, record["history command"])),
    make("td", { class: "optional" }, record["history hostname"] ?? ""),
  ];
  return [make("h1", {}, "History"), longTable("History", heads, all, row)];
}
