// All file systems and volumes: a tree that folds, and a search.

import { look } from "./api.js";
import { bytes, longTable, make, ratio, values } from "./dom.js";

const PROPERTIES = ["used", "available", "referenced", "compressratio", "mountpoint", "volsize"];

export async function datasets(_, signal) {
  const { datasets } = await look("zfs/list", { properties: PROPERTIES }, signal);
  const all = datasets.map(({ name, kind, properties }) => ({ name, kind, of: values(properties) }));
  const parents = new Set(all.map(({ name }) => name.slice(0, name.lastIndexOf("/"))));
  const open = new Set(all.filter(({ name }) => !name.includes("/")).map(({ name }) => name));
  const search = make("input", { type: "search", id: "search", placeholder: "part of a name" });
  const place = make("div"), summary = make("span", { class: "faint" });
  const isOpen = (name) => {
    for (let at = name.lastIndexOf("/"); at > 0; at = name.lastIndexOf("/", at - 1)) {
      if (!open.has(name.slice(0, at))) return false;
    }
    return true;
  };
  const draw = (focus) => {
    const wanted = search.value.trim().toLowerCase();
    const shown = all.filter(({ name }) => (wanted ? name.toLowerCase().includes(wanted) : isOpen(name)));
    summary.textContent = `${shown.length} of ${all.length}`;
    const heads = [["Name"], ["Used", "number"], ["Available", "number optional"], ["Referenced", "number optional"],
      ["Compression", "number optional"], ["Mounted at, or size", "optional"]];
    place.replaceChildren(longTable("Datasets", heads, shown, (item) => row(item, wanted)));
    if (focus) place.querySelector(`[data-name="${CSS.escape(focus)}"]`)?.focus();
  };
  const row = ({ name, kind, of }, flat) => {
    const depth = flat ? 0 : name.split("/").length - 1;
    const toggle = () => {
      if (!open.delete(name)) open.add(name);
      const top = place.firstChild.scrollTop;
      draw(name);
      place.firstChild.scrollTop = top;
    };
    const expanded = open.has(name);
    const fold = parents.has(name) && !flat
      ? make("button", { type: "button", class: "fold", "data-name": name, "aria-expanded": String(expanded), "aria-label": `What is below ${name}`, onclick: toggle }, expanded ? "▾" : "▸")
      : make("span", { class: "fold" });
    const link = make("a", { href: `#/dataset/${encodeURIComponent(name)}` }, flat ? name : name.split("/").pop());
    const label = make("th", { scope: "row" }, fold, link);
    label.style.paddingInlineStart = `${0.4 + depth * 1.2}rem`;
    const number = (property, kind = "") => make("td", { class: `number ${kind}` }, bytes(of[property]));
    const where = kind === "volume" ? `volume, ${bytes(of.volsize)}` : of.mountpoint;
    return [label, number("used"), number("available", "optional"), number("referenced", "optional"),
      make("td", { class: "number optional" }, ratio(of.compressratio)), make("td", { class: "optional" }, where)];
  };
  search.addEventListener("input", () => draw());
  draw();
  return [make("h1", {}, "Datasets"),
    make("p", { class: "row" }, make("label", { for: "search" }, "Search"), search, summary), place];
}
