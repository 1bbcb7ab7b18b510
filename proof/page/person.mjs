// person.mjs URL CHANGE LOOK FOLDER: uses the page as a person does, in Chromium: opens it, types the token, goes
// through every view by its links, does one action of each kind; then the same with a token that may only look,
// which must be offered no button that is refused. Ends with 1 if anything is answered 4xx or 5xx, or is missing.

import { chromium } from "playwright-core";

const [url, change, look, folder] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
let wrong = 0;
const complain = (text) => { wrong += 1; console.log(`WRONG: ${text}`); };

/** Opens the page and signs in; a wrong token first. */
async function enter(who, token) {
  const page = await (await browser.newContext()).newPage();
  let isRefusalWanted = true;
  page.on("response", (answer) => answer.status() >= 400 && !isRefusalWanted
    && complain(`${who}: ${answer.request().method()} ${answer.url()}: ${answer.status()}`));
  page.on("pageerror", (error) => complain(`${who}: ${error.message}`));
  await page.goto(url + "/");
  const sign = async (text) => { await page.getByLabel("Token").fill(text); await page.getByRole("button", { name: "Enter" }).click(); };
  await sign("0".repeat(64));
  await page.getByText("This token is not known here.").waitFor();
  isRefusalWanted = false;
  await sign(`  change ${token}\n`);
  await page.getByRole("heading", { name: "Pools" }).waitFor({ timeout: 5000 });
  return page;
}

/** Goes to a view by the link in the head, and waits for its content. */
async function go(page, name, content) {
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name }).click();
  await page.locator(`#view ${content}`).first().waitFor({ timeout: 15000 });
}

const VIEWS = [
  ["Pools", "section.card table"], ["Health", "section.card, #view details"], ["Datasets", "table tbody tr:nth-child(2)"],
  ["Volumes", "tbody tr"], ["Cache", "section[aria-label=Memory]"], ["History", "tbody tr"],
];

/** Through every view, down to the dataset's. */
async function tour(page) {
  for (const [name, content] of VIEWS) await go(page, name, content);
  await go(page, "Datasets", "tbody tr");
  await page.getByLabel("Search").fill("tank/files");
  await page.getByRole("link", { name: "tank/files", exact: true }).click();
  await page.locator("#view section[aria-label=Snapshots] tbody tr").first().waitFor();
}

/** Clicks a button and confirms it. */
async function act(page, button, done) {
  await button.click();
  await page.getByRole("dialog").getByRole("button", { name: "Run" }).click();
  await page.locator("#notes").getByText(done).first().waitFor({ timeout: 30000 });
}

async function steps(who, all) {
  for (const [name, step] of all) {
    try { await step(); console.log(`${who.padEnd(6)} ${name}`); } catch (error) { complain(`${who}: ${name}: ${error.message.slice(0, 400)}`); }
  }
}

let page;
await steps("change", [
  ["signs in", async () => { page = await enter("change", change); }],
  ["sees every view", () => tour(page)],
  ["takes a snapshot", () => act(page, page.getByRole("button", { name: "Take snapshot" }), /Done: zfs snapshot/)],
  ["destroys one", async () => {
    await page.getByRole("row", { name: /day-10 / }).getByRole("button", { name: "Destroy" }).click();
    await page.getByRole("dialog").getByText("tank/files@day-10").first().waitFor();
    await page.getByRole("dialog").getByRole("button", { name: "Run" }).click();
    await page.locator("#notes").getByText(/Done: zfs destroy tank\/files@day-10/).waitFor();
  }],
  ["downloads a file", async () => {
    await page.getByRole("link", { name: "Browse files" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"),
      page.getByRole("row", { name: /README.md/ }).getByRole("button", { name: "Download" }).click()]);
    if (download.suggestedFilename() !== "README.md") throw new Error(download.suggestedFilename());
  }],
  ["restores one out of a snapshot", async () => {
    await page.goBack();
    await page.getByRole("link", { name: "one", exact: true }).click();
    await act(page, page.getByRole("row", { name: /README.md/ }).getByRole("button", { name: "Restore" }), /Done: cp --force/);
  }],
  ["scrubs", async () => { await go(page, "Pools", "section.card table"); await act(page, page.getByRole("button", { name: "Scrub" }), /Done: zpool scrub tank/); }],
  ["signs out", async () => { await page.getByRole("button", { name: "Forget token" }).click(); await page.getByLabel("Token").waitFor(); }],
]);
await steps("look", [
  ["signs in", async () => { page = await enter("look", look); }],
  ["sees every view", () => tour(page)],
  ["is offered nothing that is refused", async () => {
    for (const at of ["#/pools", "#/datasets", "#/dataset/tank%2Ffiles", "#/dataset/tank%2Fvm", "#/volumes", "#/history", "#/health"]) {
      await page.evaluate((hash) => { location.hash = hash; }, at);
      await page.waitForTimeout(1000);
      const offered = await page.locator("#view button:not(.fold), #view a[href^='#/browse']").allTextContents();
      if (offered.length) throw new Error(`${at}: ${offered.slice(0, 5).join(", ")}`);
    }
  }],
  ["is told of files", async () => {
    await page.evaluate(() => { location.hash = "#/browse/" + encodeURIComponent("tank/files:/"); });
    await page.getByText("but no files").waitFor();
  }],
]);
await page?.screenshot({ path: `${folder}/look-only.png` });
await browser.close();
process.exit(wrong ? 1 : 0);
