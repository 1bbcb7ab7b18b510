// All volumes: size, space, and who uses them.

import { look } from "./api.js";
import { bytes, longTable, make, ratio, values } from "./dom.js";

const PROPERTIES = ["volsize", "used", "referenced", "compressratio", "volblocksize"];

export async function volumes(_, signal) {
  const [{ datasets: all }, clients] = await Promise.all([
    look("zfs/list", { scope: { types: { volumes: true } }, properties: PROPERTIES }, signal),
    look("volume/clients", {}, signal),
  ]);
  const heads = [["Volume"], ["Size", "number"], ["Used", "number"], ["Referenced", "number optional"],
    ["Compression", "number optional"], ["Block", "number optional"], ["Clients"]];
  const row = ({ name, properties }) => {
    const of = values(properties), users = clients.filter(({ volume }) => volume === name).map(({ who }) => who);
    const number = (property, kind = "") => make("td", { class: `number ${kind}` }, bytes(of[property]));
    return [make("th", { scope: "row" }, make("a", { href: `#/dataset/${encodeURIComponent(name)}` }, name)),
      number("volsize"), number("used"), number("referenced", "optional"),
      make("td", { class: "number optional" }, ratio(of.compressratio)), number("volblocksize", "optional"),
      make("td", {}, users.join(", ") || "–")];
  };
  return [make("h1", {}, "Volumes"), all.length ? longTable("Volumes", heads, all, row)
    : make("p", {}, "There are none: ", make("code", {}, "cenote zfs create -V 100G tank/vm"), " makes one.")];
}
