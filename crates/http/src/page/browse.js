// Files of a dataset or snapshot: look through folders, download, bring back what a snapshot still has.

import { action } from "./action.js";
import { mayChange, raw, run } from "./api.js";
import { bytes, date, longTable, make } from "./dom.js";

/** `place`: `POOL/FS@SNAPSHOT:/PATH`. */
export async function browse(place) {
  if (!mayChange()) throw new Error("This token shows names, states and properties, but no files.");
  const [dataset, path] = split(place);
  const { parts } = await run("ls", { targets: [place] });
  const files = parts.flatMap(({ files }) => files).sort((one, other) =>
    isFolder(other) - isFolder(one) || text(one.path).localeCompare(text(other.path)));
  const [live, snapshot] = dataset.split("@");
  const heads = [["Name"], ["Size", "number"], ["Changed", "optional"], ["Mode", "optional"], ["Actions"]];
  const row = (file) => {
    const name = text(file.path), at = `${path.replace(/\/$/, "")}/${name}`, full = `${dataset}:${at}`;
    const { mode, size_bytes: size, mtime } = file.attr;
    const label = isFolder(file) ? make("a", { href: link(dataset, at) }, `${name}/`) : name;
    const actions = [];
    // Other names than UTF-8 can't be written in a browser's address.
    if (typeof file.path === "string") {
      if (kind(file) === REGULAR) actions.push(make("button", { type: "button", onclick: () => download(full, name) }, "Download"));
      if (snapshot) {
        const to = `${live}:${at}`;
        const request = { sources: [{ in_pool: full }], destination: { in_pool: to }, recursive: isFolder(file), replace: true };
        const line = `cp ${isFolder(file) ? "-r " : ""}--force ${full} ${to}`;
        actions.push(action("Restore", { line, verb: "cp", request }));
      }
    }
    return [make("th", { scope: "row" }, label), make("td", { class: "number" }, isFolder(file) ? "" : bytes(size)),
      make("td", { class: "optional" }, date(mtime[0])), make("td", { class: "optional" }, (mode & 0o7777).toString(8).padStart(4, "0")), make("td", {}, actions)];
  };
  return [
    make("h1", {}, make("a", { href: `#/dataset/${encodeURIComponent(live)}` }, live), snapshot ? `@${snapshot}` : ""),
    make("nav", { "aria-label": "Folders" }, crumbs(dataset, path)),
    files.length ? longTable(`Files of ${place}`, heads, files, row) : make("p", { class: "faint" }, "The folder is empty."),
  ];
}

const REGULAR = 0o10, FOLDER = 0o04;
const kind = ({ attr }) => attr.mode >> 12;
const isFolder = (file) => kind(file) === FOLDER;

/** A name as text: one that is not UTF-8 comes as a list of bytes. */
const text = (name) => (typeof name === "string" ? name : new TextDecoder().decode(new Uint8Array(name)));

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
  const url = URL.createObjectURL(await raw("cat", { targets: [path] }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
