// Files of a dataset or snapshot: look through folders, download, bring back what a snapshot still has.

import { action } from "./action.js";
import { mayChange, raw, run } from "./api.js";
import { bytes, date, longTable, make } from "./dom.js";

/** `place`: `POOL/FS@SNAPSHOT:/PATH`. */
export async function browse(place) {
  if (!mayChange()) throw new Error("This token shows names, states and properties, but no files.");
  const [dataset, path] = split(place);
  const { output } = await run("ls", { targets: [place], long: true });
  const files = output.flat().sort((one, other) => (other.type === "d") - (one.type === "d") || one.path.localeCompare(other.path));
  const [live, snapshot] = dataset.split("@");
  const heads = [["Name"], ["Size", "number"], ["Changed", "optional"], ["Mode", "optional"], ["Actions"]];
  const row = (file) => {
    const [, at] = split(file.path);
    const name = at.slice(at.lastIndexOf("/") + 1);
    const isFolder = file.type === "d";
    const label = isFolder ? make("a", { href: link(dataset, at) }, `${name}/`) : name;
    const actions = [];
    if (file.type === "f") actions.push(make("button", { type: "button", onclick: () => download(file.path, name) }, "Download"));
    if (snapshot) {
      const fields = { paths: [file.path, `${live}:${at}`], recursive: isFolder, force: true };
      const line = `cp ${isFolder ? "-r " : ""}--force ${file.path} ${live}:${at}`;
      actions.push(action("Restore", { line, command: "cp", fields }));
    }
    return [make("th", { scope: "row" }, label), make("td", { class: "number" }, isFolder ? "" : bytes(file.size)),
      make("td", { class: "optional" }, date(file.mtime)), make("td", { class: "optional" }, file.mode), make("td", {}, actions)];
  };
  return [
    make("h1", {}, make("a", { href: `#/dataset/${encodeURIComponent(live)}` }, live), snapshot ? `@${snapshot}` : ""),
    make("nav", { "aria-label": "Folders" }, crumbs(dataset, path)),
    files.length ? longTable(`Files of ${place}`, heads, files, row) : make("p", { class: "faint" }, "The folder is empty."),
  ];
}

const split = (place) => {
  const at = place.indexOf(":");
  return [place.slice(0, at), place.slice(at + 1) || "/"];
};

const link = (dataset, path) => `#/browse/${encodeURIComponent(`${dataset}:${path}`)}`;

function crumbs(dataset, path) {
  const names = path.split("/").filter(Boolean);
  return ["", ...names].map((name, at) => make("a", { href: link(dataset, `/${names.slice(0, at).join("/")}`) }, at ? name : "/"));
}

async function download(path, name) {
  const url = URL.createObjectURL(await raw("cat", { targets: path }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
