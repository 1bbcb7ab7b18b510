// Verbs of the daemon: a request and an answer, as /v1/openapi.json describes them. Those that only look go by GET,
// which every token may send; others by POST.

const KEY = "cenote-token";
const ACCESS = "cenote-access";

export const token = () => sessionStorage.getItem(KEY) ?? "";
export const keepToken = (text) => sessionStorage.setItem(KEY, text);
export const forgetToken = () => [KEY, ACCESS].forEach((key) => sessionStorage.removeItem(key));

/** Whether the token may change something and see files, as the daemon's last answer said. */
export const mayChange = () => sessionStorage.getItem(ACCESS) === "change";

/** No token, or one that is not known. */
export class NeedsToken extends Error {}

/** A request as a query: lists repeat their field, other values that are no text are JSON. */
function query(request) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(request)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      search.append(name, typeof one === "object" ? JSON.stringify(one) : one);
    }
  }
  return search.size ? `?${search}` : "";
}

/** JSON whose numbers may have 64 bits, such as guids: those that a number can't hold become their digits. */
const parse = (text) => JSON.parse(text, (_, value, context) =>
  (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? context.source : value));

async function send(target, options) {
  if (!token()) throw new NeedsToken();
  const headers = { ...options.headers, authorization: `Bearer ${token()}` };
  const answer = await fetch(target, { ...options, headers, cache: "no-store" });
  if (answer.status === 401) throw new NeedsToken();
  sessionStorage.setItem(ACCESS, answer.headers.get(ACCESS));
  return answer;
}

/** An answer with its parts and notes; an error with the verb's own words if it failed. */
async function answered(response) {
  const { answer, parts = [], notes = [], status, error } = parse(await response.text());
  const words = [error, ...notes.map(({ text }) => text)].filter(Boolean).join("; ");
  // 3: what could be read is there, and damage was found.
  if (error || ![0, 3].includes(status)) throw new Error(words || `the command ended with ${status}`);
  return { answer, parts, words };
}

/** Runs a verb that only looks. */
export async function look(verb, request = {}, signal) {
  return (await answered(await send(`/v1/${verb}${query(request)}`, { signal }))).answer;
}

/** Runs any verb. */
export async function run(verb, request = {}) {
  const headers = { "content-type": "application/json" };
  return answered(await send(`/v1/${verb}`, { method: "POST", headers, body: JSON.stringify(request) }));
}

/** Fetches the bytes that a verb writes. */
export async function raw(verb, request) {
  const headers = { "content-type": "application/json", accept: "application/octet-stream" };
  const response = await send(`/v1/${verb}`, { method: "POST", headers, body: JSON.stringify(request) });
  if (!response.ok) await answered(response);
  return response.blob();
}

/** Looks each second until the signal; `seen` gets an answer, the one before it, and the seconds between them. */
export async function watch(verb, request, seen, signal) {
  for (let before = null, at = 0; !signal.aborted; ) {
    const answer = await look(verb, request, signal);
    const now = performance.now();
    seen(answer, before, (now - at) / 1000);
    [before, at] = [answer, now];
    await new Promise((done) => setTimeout(done, 1000));
  }
}
