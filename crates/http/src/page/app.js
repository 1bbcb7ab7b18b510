// From the address to a view. A view is a function of what follows its name in the address; it fills `main` and
// stops what it watches when the signal says so.

import { NeedsToken, forgetToken, keepToken, look, token } from "./api.js";
import { make, note } from "./dom.js";
import { browse } from "./browse.js";
import { cache } from "./cache.js";
import { dataset } from "./dataset.js";
import { datasets } from "./datasets.js";
import { health } from "./health.js";
import { history } from "./history.js";
import { pools } from "./pools.js";
import { volumes } from "./volumes.js";

const VIEWS = { pools, health, datasets, dataset, browse, volumes, cache, history };
const main = document.getElementById("view");
const leave = document.getElementById("leave");
let leaving = new AbortController();

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [name, ...rest] = location.hash.replace(/^#\//, "").split("/");
  const view = VIEWS[name] ? name : "pools";
  for (const link of document.querySelectorAll("nav a")) {
    const section = { dataset: "datasets", browse: "datasets" }[view] ?? view;
    if (link.getAttribute("href") === `#/${section}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave.hidden = !token();
  try {
    const content = await VIEWS[view](rest.map(decodeURIComponent).join("/"), signal);
    if (!signal.aborted) main.replaceChildren(...[content].flat());
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof NeedsToken) main.replaceChildren(login());
    else main.replaceChildren(make("h1", {}, "This can’t be shown"), make("p", { class: "bad" }, error.message));
  }
}

function login() {
  const field = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const enter = async (event) => {
    event.preventDefault();
    // The whole line of the file may be pasted.
    keepToken(field.value.trim().split(/\s+/).pop());
    try {
      await look("zpool/version");
      show();
    } catch (error) {
      forgetToken();
      note(error instanceof NeedsToken ? "This token is not known here." : error.message, true);
    }
  };
  return make("form", { class: "card", onsubmit: enter },
    make("h1", {}, "A token is needed"),
    make("p", {}, "The daemon keeps one in ", make("code", {}, "http-token"), " beside its socket: ",
      make("code", {}, "sudo cat /run/cenote/http-token"), ". It stays in this tab until you close it."),
    make("div", { class: "row" }, make("label", { for: "token" }, "Token"), field,
      make("button", { class: "main" }, "Enter")));
}

leave.addEventListener("click", () => { forgetToken(); show(); });
addEventListener("hashchange", () => { main.focus({ preventScroll: true }); show(); });
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault();
  else if (event.reason instanceof NeedsToken) show();
  else note(event.reason?.message ?? String(event.reason), true);
});
show();
