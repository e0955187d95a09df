/**
 * Opens the status page of the command in Chromium, under traffic: while all upstreams work, while some are down, and while
 * all upstreams of the shop are down. It checks that the page names the state and shows the upstreams that are down without
 * scrolling, on a desktop and on a phone, that the numbers change, that colours have the contrast of WCAG AA, that no text of
 * a client becomes HTML, that no request goes to another server, and that a phone need not scroll sideways.
 *
 *     npm run test:browser [-- --runtime bun] [--save]
 *
 * It needs Chromium (`CHROMIUM`, or `/usr/bin/chromium`), and is skipped without it. The screenshots are written to
 * node_modules/.cache/browser; `--save` writes the two that docs/command.md shows, with a minute of traffic.
 */
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, get, type Server } from "node:http";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Browser, chromium, type Page } from "playwright-core";
import { WebSocket, WebSocketServer } from "ws";
import { startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { within } from "../helpers/wait.ts";
import { shrinkPng } from "./_smallpng.ts";

const { values } = parseArgs({
  options: {
    runtime: { type: "string", default: "node" },
    save: { type: "boolean", default: false },
    /** The seconds of traffic before the screenshots. */
    seconds: { type: "string" },
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
function openShop(): Server {
  return createServer((req, res) => {
    if (req.url === "/health") return void res.end("ok");
    const dice = Math.random();
    const [, status, delay, size] = SHOP.find(([share]) => dice < share) ?? [1, 200, 1, 1];
    setTimeout(
      () => res.writeHead(status).end(status === 304 ? undefined : "x".repeat(size)),
      delay * (0.6 + Math.random() ** 2 * 2),
    );
  });
}
const shops = [1, 2, 3, 4].map(openShop);
let isBroken = false;
let reported = 0;
const reports = createServer((_, res) => {
  if (!isBroken || reported++ % 3 > 0) return void res.end("the report");
  res.writeHead(200, { "content-length": 9000 }).write("half of it");
  setTimeout(() => res.destroy(), 20);
});
const search = createServer((_, res) => res.end("found"));
const chat = createServer();
new WebSocketServer({ server: chat }).on("connection", (socket) =>
  socket.on("message", (data) => socket.send(data)),
);
const urlOf = async (server: Server): Promise<string> => `http://127.0.0.1:${await listen(server)}`;
const config = join(shots, "fetchway.json");
const settings = {
  routes: [
    {
      match: "/",
      target: await Promise.all(shops.map(urlOf)),
      balance: { policy: "round_robin", check: { path: "/health", interval: 300 } },
    },
    { match: "/reports", target: await urlOf(reports) },
    { match: "/search", target: await urlOf(search) },
    { match: "/chat", target: await urlOf(chat) },
  ],
};
writeFileSync(config, JSON.stringify(settings));

function stop(server: Server): void {
  server.close().closeAllConnections();
}

// ── the command ──

const COMMANDS: Record<string, readonly string[]> = {
  node: ["command/main.ts"],
  bun: ["command/main.ts"],
  deno: ["run", "-A", "command/main.ts"],
};
const command = startProgram(values.runtime, [
  ...(COMMANDS[values.runtime] ?? []),
  `--config=${config}`,
  "--port=0",
  "--admin=0",
  "--log=json",
  "--stop-timeout=1500",
]);
const [, origin = ""] = await command.printed(/listens on (http:\S+) /);
const [, admin = ""] = await command.printed(/status page: (http:[^\s"]+)/);

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
  if (isBroken && Math.random() < 0.04) request("/search?q=secret");
  if (Math.random() < 0.012) request("/reports/2026.csv");
  if (Math.random() < 0.01) request(EVIL);
}, 20);
const seconds = Number(values.seconds ?? (values.save ? 60 : 4));
await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
sockets[2]?.close();

// ── the browser ──

const ARGS =
  "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking " +
  "--disable-component-update --disable-sync";

const DESKTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };

/** Opens the page, and records everything that must not happen. */
async function open(
  browser: Browser,
  viewport: typeof DESKTOP,
  colorScheme: "light" | "dark" = "light",
): Promise<Page> {
  const context = await browser.newContext({ colorScheme, viewport });
  const page = await context.newPage();
  page.on("console", (message) => wrong.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => wrong.push(`dialog: ${dialog.message()}`));
  page.on("request", (sent) => {
    if (!sent.url().startsWith(admin) && !sent.url().startsWith("data:")) wrong.push(sent.url());
  });
  await page.goto(admin);
  await page.locator("main:not(.stale)").waitFor();
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `the page is ${overflow} px too wide`);
  return page;
}

/**
 * Takes the screenshots of a state of the command, and checks that each upstream that does not work is visible, with the
 * reason, without scrolling.
 */
async function show(browser: Browser, name: string, header: RegExp, bad: number): Promise<void> {
  for (const [width, viewport] of Object.entries({ desktop: DESKTOP, phone: PHONE })) {
    for (const scheme of ["light", "dark"] as const) {
      const page = await open(browser, viewport, scheme);
      await page.locator("#state", { hasText: header }).waitFor();
      await page.waitForFunction(
        (count) => document.querySelectorAll("#upstreams .dot.bad").length === count,
        bad,
      );
      const lowest = await page.evaluate(() => {
        const dots = [...document.querySelectorAll("#upstreams .dot.bad")];
        return Math.max(0, ...dots.map((dot) => dot.getBoundingClientRect().bottom));
      });
      assert.ok(lowest <= viewport.height, `a failing upstream is at ${lowest} px on a ${width}`);
      assert.equal(await page.locator("#upstreams .why b.bad").count(), bad);
      await checkContrast(page);
      await page.screenshot({ path: join(shots, `${name}-${width}-${scheme}.png`) });
      await page.screenshot({
        path: join(shots, `${name}-${width}-${scheme}-full.png`),
        fullPage: true,
      });
      await page.close();
    }
  }
}

/** Checks that each colour of a text has the contrast of WCAG 2.2 AA (1.4.3) on both backgrounds. */
async function checkContrast(page: Page): Promise<void> {
  const ratios = await page.evaluate(() => {
    const probe = document.body.appendChild(document.createElement("i"));
    const luminance = (name: string): number => {
      probe.style.color = `var(--${name})`;
      const [red = 0, green = 0, blue = 0] = Array.from(
        getComputedStyle(probe).color.matchAll(/[\d.]+/g),
        ([part]) => {
          const value = Number(part) / 255;
          return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        },
      );
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const found = ["text", "soft", "good", "info", "warn", "bad"].flatMap((text) =>
      ["card", "page"].map((ground): [string, number] => {
        const [low = 0, high = 0] = [luminance(text), luminance(ground)].toSorted((a, b) => a - b);
        return [`${text} on ${ground}`, (high + 0.05) / (low + 0.05)];
      }),
    );
    probe.remove();
    return found;
  });
  for (const [name, ratio] of ratios) assert.ok(ratio >= 4.5, `${name}: ${ratio.toFixed(2)}`);
}

const wrong: string[] = [];
const browser = await chromium.launch({ executablePath, args: ARGS.split(" ") });
try {
  await show(browser, "up", /^running$/, 0);

  for (const server of [...shops.slice(2), search]) stop(server);
  isBroken = true;
  await new Promise((resolve) => setTimeout(resolve, (seconds / 3) * 1000));
  const parts = "2 of 7 upstreams down, 1 of 7 upstreams failing, 1 of 4 routes failing";
  const degraded = new RegExp(`^degraded: (?:\\d+ % of the last minute failed, )?${parts}$`);
  await show(browser, "degraded", degraded, 3);
  for (const [width, name] of [
    ["desktop", "status"],
    ["phone", "status-narrow"],
  ] as const) {
    const small = await shrinkPng(
      browser,
      readFileSync(join(shots, `degraded-${width}-light.png`)),
    );
    writeFileSync(join(values.save ? join(root, "docs") : shots, `${name}.png`), small);
  }

  const page = await open(browser, DESKTOP);
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
  // The Tab key reaches the links and everything that scrolls, and the focus is visible.
  const reached: string[] = [];
  for (let i = 0; i < 6 && reached.at(-1) !== "readyz"; i++) {
    await page.keyboard.press("Tab");
    const [name, outline] = await page.evaluate(() => {
      const element = document.activeElement as HTMLElement;
      const { outlineStyle } = getComputedStyle(element);
      return [element.ariaLabel ?? element.textContent ?? "", outlineStyle];
    });
    reached.push(name);
    assert.notEqual(outline, "none");
  }
  assert.deepEqual(reached.slice(-4), ["JSON", "Prometheus", "healthz", "readyz"]);

  for (const server of shops.slice(0, 2)) stop(server);
  await show(
    browser,
    "down",
    /^failing: \d+ % of the last minute failed, 4 of 7 upstreams down$/,
    5,
  );

  // While the command stops, the page says so. Afterwards, the page says that it has no connection.
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
  for (const server of [...shops, reports, search, chat]) stop(server);
  await command[Symbol.asyncDispose]();
}
process.exit(0);
