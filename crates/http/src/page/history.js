// What was done to the pools: their history, newest first.

import { look } from "./api.js";
import { date, longTable, make } from "./dom.js";

export async function history(_, signal) {
  const { pools = {} } = await look("zpool/history", { long: true }, signal);
  const all = Object.entries(pools).flatMap(([pool, { history }]) => history.map((record, at) => ({ pool, record, at })));
  all.sort((one, other) => other.record["history time"] - one.record["history time"] || other.at - one.at);
  const heads = [["When"], ["Pool", "optional"], ["Command"], ["Host", "optional"]];
  const row = ({ pool, record }) => [
    make("td", {}, date(record["history time"])), make("td", { class: "optional" }, pool),
    make("td", {}, make("code", {}, record["history command"] ?? record["history internal name"] ?? "")),
    make("td", { class: "optional" }, record["history hostname"] ?? ""),
  ];
  return [make("h1", {}, "History"), longTable("History", heads, all, row)];
}
