/**
 * Opens the status page of the command in Chromium, under traffic with failures. It checks that the numbers change, that
 * no text of a client becomes HTML, that no request goes to another server, and that a phone need not scroll sideways.
 *
 *     npm run test:browser [-- --runtime bun] [--save]
 *
 * It needs Chromium (`CHROMIUM`, or `/usr/bin/chromium`), and is skipped without it. The screenshots are written to
 * node_modules/.cache/browser; `--save` writes the one that docs/command.md shows.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { createServer, get } from "node:http";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Browser, chromium, type Page } from "playwright-core";
import { WebSocket, WebSocketServer } from "ws";
import { startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { within } from "../helpers/wait.ts";

const { values } = parseArgs({
  options: {
    runtime: { type: "string", default: "node" },
    save: { type: "boolean", default: false },
    /** The seconds of traffic before the screenshots. */
    seconds: { type: "string", default: "4" },
  },
});

const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
if (!existsSync(executablePath)) {
  console.log(`skipped: there is no ${executablePath}; install Chromium, or set CHROMIUM`);
  process.exit(0);
}
const root = join(import.meta.dirname, "../..");
const shots = join(root, "node_modules/.cache/browser");
mkdirSync(shots, { recursive: true });

// ── upstreams ──

const SHOP: readonly [share: number, status: number, delay: number, size: number][] = [
  [0.7, 200, 4, 1800],
  [0.85, 200, 18, 9400],
  [0.9, 304, 3, 0],
  [0.95, 404, 5, 320],
  [0.985, 200, 90, 42_000],
  [1, 500, 40, 120],
];
const shop = createServer((_, res) => {
  const dice = Math.random();
  const [, status, delay, size] = SHOP.find(([share]) => dice < share) ?? [1, 200, 1, 1];
  setTimeout(
    () => res.writeHead(status).end(status === 304 ? undefined : "x".repeat(size)),
    delay * (0.6 + Math.random() ** 2 * 2),
  );
});
const cutter = createServer((_, res) => {
  res.writeHead(200, { "content-length": 9000 }).write("half of it");
  setTimeout(() => res.destroy(), 20);
});
const chat = createServer();
new WebSocketServer({ server: chat }).on("connection", (socket) =>
  socket.on("message", (data) => socket.send(data)),
);
const [shopPort, cutPort, chatPort] = [
  await listen(shop),
  await listen(cutter),
  await listen(chat),
];
const closed = createServer();
const deadPort = await listen(closed);
closed.close();

// ── the command ──

const COMMANDS: Record<string, readonly string[]> = {
  node: ["command/main.ts"],
  bun: ["command/main.ts"],
  deno: ["run", "-A", "command/main.ts"],
};
const probe = createServer();
const adminPort = await listen(probe);
await new Promise((resolve) => probe.close(resolve));
const command = startProgram(values.runtime, [
  ...(COMMANDS[values.runtime] ?? []),
  `http://127.0.0.1:${shopPort}`,
  "--port=0",
  `--route=/reports=http://127.0.0.1:${cutPort}`,
  `--route=/search=http://127.0.0.1:${deadPort}`,
  `--route=/chat=http://127.0.0.1:${chatPort}`,
  `--admin=${adminPort}`,
  "--log=json",
  "--stop-timeout=1500",
]);
const [, origin = ""] = await command.printed(/listens on (http:\S+) /);
const [, admin = ""] = await command.printed(/status page: (http:\S+)/);

// ── traffic ──

const PATHS = [
  "/",
  "/cart",
  "/products/17",
  "/products/8",
  "/login",
  "/img/logo.svg",
  "/api/prices",
];
const EVIL = "/%3Cimg/src=x'onerror=alert(1)>";
const sockets = [1, 2, 3].map(() => new WebSocket(`${origin.replace("http", "ws")}/chat`));
for (const socket of sockets) socket.on("open", () => socket.send("hello")).on("error", () => {});

function request(path: string): void {
  get(`${origin}${path}`, (res) => res.on("error", () => {}).resume()).on("error", () => {});
}
const begin = performance.now();
const traffic = setInterval(() => {
  const wave = 1 + 0.5 * Math.sin((performance.now() - begin) / 4000);
  for (let i = 0; i < 4; i++) {
    if (Math.random() < 0.7 * wave)
      request(PATHS[Math.floor(Math.random() ** 2 * PATHS.length)] as string);
  }
  if (Math.random() < 0.025) request("/search?q=secret");
  if (Math.random() < 0.012) request("/reports/2026.csv");
  if (Math.random() < 0.01) request(EVIL);
}, 20);
await new Promise((resolve) => setTimeout(resolve, Number(values.seconds) * 1000));
sockets[2]?.close();

// ── the browser ──

const ARGS =
  "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking " +
  "--disable-component-update --disable-sync";

/** Opens the page, and records everything that must not happen. */
async function open(browser: Browser, dark: boolean, width: number, height: number): Promise<Page> {
  const context = await browser.newContext({
    colorScheme: dark ? "dark" : "light",
    viewport: { width, height },
  });
  const page = await context.newPage();
  page.on("console", (message) => wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => wrong.push(`dialog: ${dialog.message()}`));
  page.on("request", (sent) => {
    if (!sent.url().startsWith(admin) && !sent.url().startsWith("data:")) wrong.push(sent.url());
  });
  await page.goto(admin);
  await page.locator("#state.good").waitFor();
  return page;
}
const wrong: string[] = [];
const browser = await chromium.launch({ executablePath, args: ARGS.split(" ") });
try {
  const page = await open(browser, false, 1200, 1045);
  assert.equal(await page.title(), "Fetchway");
  const text = await page.locator("main").innerText();
  for (const part of ["502 connection_refused", "is it running?", "http_response_incomplete"]) {
    assert.ok(text.includes(part), `${part} is missing in: ${text}`);
  }
  assert.ok(!text.includes("secret"), "a query is shown");
  assert.ok(Number(await page.locator(".big").evaluate((big) => big.firstChild?.textContent)) > 5);
  assert.ok((await page.locator("#rate rect").count()) > 2);
  assert.equal(await page.locator("main img").count(), 0, "a path became HTML");
  // The numbers change without a reload.
  const requests = page.locator("#now dd").first();
  const before = await requests.innerText();
  await page.waitForFunction(
    (old) => document.querySelector("#now dd")?.textContent !== old,
    before,
  );
  const save = values.save ? join(root, "docs/status.png") : join(shots, "light.png");
  await page.screenshot({ path: save });
  await page.screenshot({ path: join(shots, "light-full.png"), fullPage: true });

  const dark = await open(browser, true, 1200, 1045);
  await dark.screenshot({ path: join(shots, "dark.png") });
  const colors = (of: Page): Promise<string> =>
    of.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.notEqual(await colors(page), await colors(dark));

  for (const isDark of [false, true]) {
    const phone = await open(browser, isDark, 390, 844);
    const overflow = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `the page is ${overflow} px too wide for a phone`);
    const name = isDark ? "phone-dark" : "phone";
    await phone.screenshot({ path: join(shots, `${name}.png`) });
    await phone.setViewportSize({ width: 390, height: 1700 });
    await phone.screenshot({ path: join(shots, `${name}-long.png`) });
    await phone.close();
  }
  await dark.close();

  // While the command stops, the page says so; afterwards, that it has no connection.
  clearInterval(traffic);
  command.signal("SIGTERM");
  await page.locator("#state", { hasText: "stopping" }).waitFor();
  await page.locator("#state", { hasText: "no connection" }).waitFor();
  assert.ok(await page.locator("main.stale").isVisible());
  // The browser itself reports the failed connections after the command has stopped.
  const unexpected = wrong.filter((each) => !/ERR_(?:CONNECTION|INCOMPLETE)/.test(each));
  assert.deepEqual(unexpected, []);
  await within(command.ended(), "the end of the command");
  console.log(`passed on ${values.runtime}; the screenshots are in ${shots}`);
} finally {
  clearInterval(traffic);
  await browser.close();
  for (const socket of sockets) socket.terminate();
  for (const server of [shop, cutter, chat]) server.close().closeAllConnections();
  await command[Symbol.asyncDispose]();
}
process.exit(0);
