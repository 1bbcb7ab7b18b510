// Verbs that change something: the command line is shown, and the verb runs if it is confirmed.

import { mayChange, run } from "./api.js";
import { make, note } from "./dom.js";

/**
 * A button that asks before it runs a verb; none with a token that may only look. `line`: as it is typed.
 * `before`: more to be shown.
 */
export function action(label, { line, verb, request, before, done, danger }) {
  if (!mayChange()) return null;
  const ask = async () => {
    const said = before ? await before() : null;
    const dialog = make("dialog", { "aria-label": label },
      make("h2", {}, label),
      make("p", {}, "This runs ", make("code", {}, `cenote ${line}`)),
      said ? make("pre", {}, said) : null,
      make("form", { method: "dialog", class: "row" },
        make("button", { value: "run", class: danger ? "bad" : "main" }, "Run"), make("button", { value: "" }, "Cancel")));
    document.body.append(dialog);
    dialog.addEventListener("close", async () => {
      dialog.remove();
      if (dialog.returnValue !== "run") return;
      const { words } = await run(verb, request);
      note(words || `Done: ${line}`);
      done?.();
    });
    dialog.showModal();
  };
  return make("button", { type: "button", onclick: ask }, label);
}
