// What should be done about the pools, and why: the lab's rules, held against what the daemon knows.

import { look } from "./api.js";
import { count, make } from "./dom.js";

let kept = null;

/** The verdicts on the daemon's pools, at most so old. */
export async function review(signal, milliseconds = 0) {
  if (!kept || Date.now() - kept.at > milliseconds) {
    kept = { at: Date.now(), found: await look("lab/advise", {}, signal) };
  }
  return kept.found;
}

/** Text in which words between backquotes are code. */
const prose = (text) => text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));

const KINDS = { critical: "bad", warning: "warn", notice: "faint" };

export async function health(_, signal) {
  const { advice, unknown, fine, missing } = await review(signal);
  const gaps = [...unknown.map(({ subject, rule, why }) => [subject, `${rule}: ${why}`]),
    ...missing.map(({ source, why }) => [source, why])];
  return [
    make("h1", {}, "Health"),
    advice.length ? advice.map(card)
      : make("p", { class: "card" }, `Nothing is to be done: ${count(fine.length)} checks passed.`),
    list("Can’t tell", gaps),
    list("In order", fine.map(({ subject, rule }) => [subject, rule])),
  ].flat().filter(Boolean);
}

/** How many pieces of advice there are of each kind, for a pool or whatever it names. */
export function summary({ advice }, pool) {
  const of = advice.filter(({ subject }) => subject.split(/[/:@]/)[0] === pool);
  const parts = Object.keys(KINDS).map((kind) => [kind, of.filter(({ severity }) => severity === kind).length]);
  const words = parts.filter(([, number]) => number).map(([kind, number]) => `${number} ${kind}${number > 1 && kind !== "critical" ? "s" : ""}`);
  return words.length ? words.join(", ") : null;
}

function card({ severity, subject, summary: said, evidence, reason, sources, remedy, rule }) {
  const figures = evidence.map(({ what, shown }) => make("div", {}, make("dt", {}, what), make("dd", {}, shown)));
  return make("section", { class: "card", "aria-label": `${subject}: ${said}` },
    make("div", { class: "row" }, make("h2", {}, subject), make("span", { class: `state ${KINDS[severity]}` }, severity)),
    make("p", {}, said),
    make("dl", { class: "facts" }, figures),
    remedy.commands.length ? make("pre", {}, remedy.commands.join("\n")) : null,
    make("p", {}, make("strong", {}, `Risk: ${remedy.risk}. `), prose(remedy.caution)),
    make("details", {}, make("summary", {}, "Why"), make("p", {}, prose(reason)),
      make("p", { class: "faint" }, `Rule ${rule}. ${sources.join("; ")}`)));
}

/** Subjects that are named before the others are only counted. */
const NAMED = 5;

/** What is said of subjects, each thing once. */
function list(title, pairs) {
  if (!pairs.length) return null;
  const subjects = new Map();
  for (const [subject, text] of pairs) {
    if (!subjects.has(text)) subjects.set(text, []);
    subjects.get(text).push(subject);
  }
  const names = (all) => all.slice(0, NAMED).join(", ") + (all.length > NAMED ? ` and ${count(all.length - NAMED)} more` : "");
  const rows = [...subjects].map(([text, all]) => make("div", {}, make("dt", {}, names(all)), make("dd", {}, prose(text))));
  return make("details", { class: "card" }, make("summary", {}, `${title}: ${count(pairs.length)}`), make("dl", { class: "pairs" }, rows));
}
