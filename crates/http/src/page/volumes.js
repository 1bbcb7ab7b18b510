// All volumes: size, space, and who uses them.

import { look } from "./api.js";
import { bytes, longTable, make } from "./dom.js";

const COLUMNS = "name,volsize,used,referenced,compressratio,volblocksize,origin";

export async function volumes(_, signal) {
  const [{ datasets = {} }, { volumes: used = {} }] = await Promise.all([
    look("zfs/list", { types: "volume", columns: COLUMNS, parsable: true }, signal),
    look("volume/clients", {}, signal),
  ]);
  const all = Object.values(datasets);
  const heads = [["Volume"], ["Size", "number"], ["Used", "number"], ["Referenced", "number optional"],
    ["Compression", "number optional"], ["Block", "number optional"], ["Clients"]];
  const row = ({ name, properties }) => {
    const value = (property) => properties[property]?.value;
    const number = (property, kind = "") => make("td", { class: `number ${kind}` }, bytes(value(property)));
    return [make("th", { scope: "row" }, make("a", { href: `#/dataset/${encodeURIComponent(name)}` }, name)),
      number("volsize"), number("used"), number("referenced", "optional"),
      make("td", { class: "number optional" }, `${value("compressratio")} ×`), number("volblocksize", "optional"),
      make("td", {}, used[name]?.clients.join(", ") ?? "–")];
  };
  return [make("h1", {}, "Volumes"), all.length ? longTable("Volumes", heads, all, row)
    : make("p", {}, "There are none: ", make("code", {}, "cenote zfs create -V 100G tank/vm"), " makes one.")];
}
