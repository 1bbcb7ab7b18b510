// Commands of the daemon. Those that only look go by GET, which every token may; others by POST.

const KEY = "cenote-token";
const ACCESS = "cenote-access";

export const token = () => sessionStorage.getItem(KEY) ?? "";
export const keepToken = (text) => sessionStorage.setItem(KEY, text);
export const forgetToken = () => [KEY, ACCESS].forEach((key) => sessionStorage.removeItem(key));

/** Whether the token may change something and see files, as the daemon's last answer said. */
export const mayChange = () => sessionStorage.getItem(ACCESS) === "change";

/** No token, or one that is not known. */
export class NeedsToken extends Error {}

function query(fields) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(fields)) {
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, one);
  }
  return search.size ? `?${search}` : "";
}

async function send(target, options) {
  if (!token()) throw new NeedsToken();
  const headers = { ...options.headers, authorization: `Bearer ${token()}` };
  const answer = await fetch(target, { ...options, headers, cache: "no-store" });
  if (answer.status === 401) throw new NeedsToken();
  sessionStorage.setItem(ACCESS, answer.headers.get(ACCESS));
  return answer;
}

/** Documents of an answer; an error with the command's own words if it failed. */
async function documents(answer) {
  const { output = [], messages = [], status, error } = await answer.json();
  const words = error ?? messages.map((said) => said.error ?? said.message ?? said).join("; ");
  // 3: what could be read is there, and damage was found.
  if (error || ![0, 3].includes(status)) throw new Error(words || `the command ended with ${status}`);
  return { output, messages: words };
}

/** Runs a command that only looks; answers its first document. */
export async function look(command, fields = {}, signal) {
  const answer = await send(`/v1/${command}${query(fields)}`, { signal });
  return (await documents(answer)).output[0] ?? {};
}

/** Runs any command. */
export async function run(command, fields = {}) {
  const headers = { "content-type": "application/json" };
  return documents(await send(`/v1/${command}`, { method: "POST", headers, body: JSON.stringify(fields) }));
}

/** Fetches the bytes that a command writes. */
export async function raw(command, fields) {
  const answer = await send(`/v1/${command}${query(fields)}`, { method: "POST", headers: { accept: "application/octet-stream" } });
  if (!answer.ok) await documents(answer);
  return answer.blob();
}

/** Calls `seen` with each document of a command that goes on, until the signal or its end. */
export async function watch(command, fields, seen, signal) {
  const headers = { accept: "text/event-stream" };
  const answer = await send(`/v1/${command}${query(fields)}`, { headers, signal });
  if (!answer.ok) await documents(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const [kind, data] = text.slice(0, end).split("\ndata: ");
      if (kind === "event: output") seen(JSON.parse(data));
    }
  }
}
