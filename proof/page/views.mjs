// views.mjs URL TOKEN FOLDER: opens every view of the page in Chromium; says how long each takes until its content
// is there, what axe-core finds, and what the console says; keeps screenshots in FOLDER, light, dark and narrow.
// Ends with 1 if a view takes over a second, axe-core finds a violation, or anything is asked of elsewhere.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [url, token, folder] = process.argv.slice(2);
const VIEWS = [
  ["pools", "#/pools", "section.card table"],
  ["health", "#/health", "section.card dl"],
  ["datasets", "#/datasets", "table tbody tr:nth-child(2)"],
  ["dataset", "#/dataset/tank%2Fmany", "section[aria-label=Snapshots] tbody tr"],
  ["browse", "#/browse/" + encodeURIComponent("tank/files@one:/"), "tbody tr"],
  ["volumes", "#/volumes", "tbody tr"],
  ["cache", "#/cache", "section[aria-label=Memory]"],
  ["history", "#/history", "tbody tr"],
];
const LIMIT_MS = 1000;
const axe = readFileSync(new URL(import.meta.resolve("axe-core")).pathname, "utf8");
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
let wrong = 0;
const complain = (text) => { wrong += 1; console.log(`WRONG: ${text}`); };

for (const [look, options] of [
  ["light", { colorScheme: "light", viewport: { width: 1200, height: 900 } }],
  ["dark", { colorScheme: "dark", viewport: { width: 1200, height: 900 } }],
  ["narrow", { colorScheme: "light", viewport: { width: 390, height: 800 } }],
]) {
  const context = await browser.newContext({ ...options, bypassCSP: true });
  const page = await context.newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complain(`${look}: console: ${message.text()}`));
  page.on("pageerror", (error) => complain(`${look}: ${error.message}`));
  page.on("request", (request) => request.url().startsWith(url) || request.url().startsWith("blob:") || complain(`asks ${request.url()}`));
  await page.goto(url + "/");
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Enter" }).click();
  await page.waitForSelector("#view section.card table");
  for (const [name, hash, ready] of VIEWS) {
    await page.evaluate(() => { location.hash = "#/none"; document.getElementById("view").replaceChildren(); });
    await page.waitForTimeout(300);
    const begun = performance.now();
    await page.evaluate((hash) => { document.getElementById("view").replaceChildren(); location.hash = hash; }, hash);
    try {
      await page.waitForSelector(`#view ${ready}`, { timeout: 15000 });
    } catch {
      complain(`${look} ${name}: is not there: ${(await page.textContent("#view")).slice(0, 200)}`);
      continue;
    }
    const took = performance.now() - begun;
    if (["pools", "cache"].includes(name)) await page.waitForTimeout(2500);
    await page.screenshot({ path: `${folder}/${name}-${look}.png` });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => axe.run());
    console.log(`${look.padEnd(7)} ${name.padEnd(9)} ${took.toFixed(0).padStart(5)} ms, ${violations.length} violations`);
    if (look === "light" && name !== "cache" && took > LIMIT_MS) complain(`${name} takes ${took.toFixed(0)} ms`);
    for (const { id, help, nodes } of violations) complain(`${look} ${name}: ${id}: ${help}: ${nodes[0].html.slice(0, 160)}`);
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth + 1)) complain(`${look} ${name}: wider than the window`);
  }
  await context.close();
}
await browser.close();
process.exit(wrong ? 1 : 0);
