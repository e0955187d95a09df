/** docs/coming-from-nginx.md: its config file runs with the real command, and its tables name options that exist. */
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, get as getPlain, type IncomingMessage, type Server } from "node:http";
import { get, type RequestOptions } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocketServer } from "ws";
import { serverSchema } from "../../command/flags/commandoptions.ts";
import { flags } from "../../command/flags/flags.ts";
import { poolSchema } from "../../src/options/pooloptions.ts";
import { proxySchema } from "../../src/options/proxyoptions.ts";
import { Command } from "../command/_command.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { sayHello } from "../helpers/handshake.ts";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";
import { expectAllRun, readBlock, withCopy } from "./_blocks.ts";

const PAGE = "docs/coming-from-nginx.md";
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
const own = await makeCertificate();
const [cert, key] = [join(folder, "shop.pem"), join(folder, "shop.key")];
writeFileSync(cert, own.cert);
writeFileSync(key, own.key);

const HOST = "shop.example";
const trusted: RequestOptions = {
  ca: own.cert,
  agent: false,
  servername: "localhost",
  headers: { host: HOST },
};

interface Got {
  readonly upstream: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
}
const got: Got[] = [];
/** Returns the last request that is not a health check of the proxy. */
const lastGot = (): Got | undefined => got.findLast(({ path }) => path !== "/healthz");
const targets: Record<string, string> = {};
const servers: Server[] = [];

beforeAll(async () => {
  for (const name of ["10.0.0.1:4000", "10.0.0.2:4000", "10.0.0.9:4001", "127.0.0.1:8888"]) {
    const server = createServer(({ url = "", headers }, res) => {
      got.push({ upstream: name, path: url, headers });
      res.end(name);
    });
    const echo = new WebSocketServer({ server });
    echo.on("connection", (socket) =>
      socket.on("message", (data) => socket.send(data, { binary: false })),
    );
    targets[name] = `127.0.0.1:${await listen(server)}`;
    servers.push(server);
  }
});
afterAll(() => {
  for (const server of servers) server.close().closeAllConnections();
  rmSync(folder, { recursive: true });
});

async function ask(
  url: string,
  options: RequestOptions = trusted,
): Promise<[IncomingMessage, string]> {
  const sent = url.startsWith("https:") ? get(url, options) : getPlain(url, options);
  const [message] = (await within(once(sent, "response"), url)) as [IncomingMessage];
  return [message, await text(message)];
}

/** Starts the command with the config file of a block, in which texts are replaced. */
async function withConfig(
  place: string,
  replaced: Readonly<Record<string, string>>,
  use: (command: Command, file: string) => Promise<void>,
  flagsOfTest = "",
  env: NodeJS.ProcessEnv = { PASSWORD: "s3cret" },
): Promise<void> {
  await withCopy(place, replaced, async (copy) => {
    const file = fileURLToPath(copy);
    const line = `--config "${file}" ${flagsOfTest}`;
    const command = new Command(line, [], undefined, undefined, env);
    try {
      await use(command, file);
    } finally {
      await command.kill();
    }
  });
}

/** The ports, files and addresses of this test, instead of those on the page. */
function local(): Record<string, string> {
  const { "10.0.0.1:4000": first, "10.0.0.2:4000": second, "10.0.0.9:4001": api } = targets;
  return {
    "0.0.0.0": "127.0.0.1",
    "port: 443": "port: 0",
    "redirectHttp: 80": "redirectHttp: 0",
    "/etc/ssl/shop.pem": cert,
    "/etc/ssl/shop.key": key,
    "10.0.0.1:4000": first as string,
    "10.0.0.2:4000": second as string,
    "10.0.0.9:4001": api as string,
  };
}

test("the command with the page's config file does what the page says", async () => {
  await withConfig(`${PAGE}: One configuration (3)`, local(), async (command, file) => {
    const origin = await command.origin();
    const { port } = new URL(origin);

    // Two upstreams share the requests, and both are checked.
    const bodies = await Promise.all(Array.from({ length: 8 }, () => ask(`${origin}/a?b`)));
    expect(new Set(bodies.map(([, body]) => body))).toEqual(
      new Set(["10.0.0.1:4000", "10.0.0.2:4000"]),
    );
    const checked = (): number =>
      new Set(got.filter(({ path }) => path === "/healthz").map(({ upstream }) => upstream)).size;
    await until(() => checked() === 2, "the checks of both upstreams");

    // The prefix of the API is removed, and header fields are set in both directions.
    const [response, body] = await ask(`${origin}/api/x`);
    expect([response.statusCode, body]).toEqual([200, "10.0.0.9:4001"]);
    expect(response.headers["strict-transport-security"]).toBe("max-age=31536000");
    expect(lastGot()).toMatchObject({
      path: "/x",
      headers: { host: HOST, "x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https" },
    });

    const [unknown] = await ask(`${origin}/`, { ...trusted, headers: { host: "other.example" } });
    expect(unknown.statusCode).toBe(404);

    const [, plain = ""] = await command.says(/(http:\/\/\S+) redirects to https:/);
    const [moved] = await ask(`${plain}/a?b`, { headers: { host: HOST } });
    expect([moved.statusCode, moved.headers.location]).toEqual([
      308,
      `https://${HOST}:${port}/a?b`,
    ]);

    const { ca, servername, headers } = trusted;
    const socket = origin.replace("https:", "wss:");
    expect(await sayHello(`${socket}/live`, { ca, servername, headers })).toBe("hello");

    await command.says(/^127\.0\.0\.1 .* "GET \/api\/x HTTP\/1\.1" 200 .* "-" "-"$/m);

    // The command reloads the file when it changes.
    writeFileSync(file, readFileSync(file, "utf8").replace("max-age=31536000", "max-age=1"));
    await command.says(/has been reloaded: 2 routes/);
    const [after] = await ask(`${origin}/api/x`);
    expect(after.headers["strict-transport-security"]).toBe("max-age=1");
  });
});

test("--inspect shows the request that the page describes, and reports a mistake with its line", async () => {
  const place = `${PAGE}: One configuration (3)`;
  const inspect = "--inspect https://shop.example/api/x";
  const exitOf = (command: Command): Promise<number | null> => within(command.exit, "the exit");
  await withConfig(
    place,
    local(),
    async (command) => {
      expect(await exitOf(command)).toBe(0);
      expect(command.stdout).toMatch(/route shop\.example\/api → http:\/\/127\.0\.0\.1:\d+/);
      expect(command.stdout).toMatch(/Host: shop\.example/);
    },
    inspect,
  );
  await withConfig(
    place,
    { "timeout: 5000": 'timeout: "5 apples"' },
    async (command) => {
      expect(await exitOf(command)).toBe(2);
      expect(command.stderr).toMatch(/\.ts:\d+: route "shop\.example\/api": timeout: /);
    },
    inspect,
  );
  await withConfig(
    place,
    { ...local(), "/etc/ssl/shop.pem": `${folder}/missing.pem` },
    async (command) => {
      expect(await exitOf(command)).toBe(2);
      expect(command.stderr).toMatch(/server\.cert \S+ cannot be read: there is no such file/);
    },
    inspect,
  );
});

test("an ACME challenge reaches the ACME client of the page's route, through the redirect to https", async () => {
  const route =
    '{ match: "shop.example/.well-known/acme-challenge", target: "http://127.0.0.1:8888" }';
  expect(readFileSync(new URL(`../../${PAGE}`, import.meta.url), "utf8")).toContain(`\`${route}\``);
  const challenge = route.replace("127.0.0.1:8888", targets["127.0.0.1:8888"] as string);
  const replaced = { ...local(), "routes: [": `routes: [${challenge},` };
  await withConfig(`${PAGE}: One configuration (3)`, replaced, async (command) => {
    const [, plain = ""] = await command.says(/(http:\/\/\S+) redirects to https:/);
    const path = "/.well-known/acme-challenge/token";
    const [{ headers }] = await ask(`${plain}${path}`, { headers: { host: HOST } });
    const [, body] = await ask((headers.location as string).replace(HOST, "127.0.0.1"));
    expect(body).toBe("127.0.0.1:8888");
    expect(lastGot()?.path).toBe(path);
  });
});

test("basic auth: only the right password passes, and the upstream does not see it", async () => {
  const replaced = { "127.0.0.1:4000": targets["10.0.0.1:4000"] as string };
  await withConfig(
    `${PAGE}: What is not here`,
    replaced,
    async (command) => {
      const origin = await command.origin();
      const statusOf = async (authorization?: string): Promise<number> => {
        const headers = authorization === undefined ? {} : { authorization };
        return (await fetch(`${origin}/secret`, { headers })).status;
      };
      expect(await statusOf()).toBe(401);
      expect(await statusOf(`Basic ${btoa("admin:wrong")}`)).toBe(401);
      expect(got.filter(({ path }) => path === "/secret")).toEqual([]);
      expect(await statusOf(`Basic ${btoa("admin:s3cret")}`)).toBe(200);
      expect(lastGot()?.headers.authorization).toBeUndefined();
    },
    "--port 0 --log off",
  );
});

test("basic auth: without a password, the command does not start", async () => {
  await withConfig(
    `${PAGE}: What is not here`,
    {},
    async (command) => {
      expect(await within(command.exit, "the exit")).toBe(2);
      expect(command.stderr).toContain("set PASSWORD");
    },
    "--port 0",
    { PASSWORD: "" },
  );
});

const hasNginx = spawnSync("nginx", ["-v"]).error === undefined;

test("nginx accepts the configuration of nginx on the page", ({ skip }) => {
  let code = readBlock(`${PAGE}: One configuration`);
  skip(!hasNginx, "nginx is not installed");
  for (const [there, here] of [
    ["/etc/ssl/shop.pem", cert],
    ["/etc/ssl/shop.key", key],
    ["/var/log/nginx", folder],
    [/\b10\.0\.0\.\d/g, "127.0.0.1"],
    // `nginx -t` listens on the ports for a moment.
    ["listen 80;", `listen unix:${folder}/80.sock;`],
    ["listen 443 ssl;", `listen unix:${folder}/443.sock ssl;`],
  ] as const) {
    expect(code).toMatch(there);
    code = code.replaceAll(there, here);
  }
  const file = join(folder, "nginx.conf");
  writeFileSync(file, `pid ${folder}/nginx.pid; events {} http { access_log off;\n${code} }`);
  const { status, stderr } = spawnSync("nginx", ["-t", "-e", "stderr", "-p", folder, "-c", file], {
    encoding: "utf8",
  });
  expect(status, stderr).toBe(0);
});

test("the flags and keys in the table of directives exist", () => {
  const page = readFileSync(new URL(`../../${PAGE}`, import.meta.url), "utf8");
  const [, table = ""] = /^## Directives\n([^]*?)^## /m.exec(page) ?? [];
  const rows = table.split("\n").filter((line) => line.startsWith("| `"));
  expect(rows.length).toBeGreaterThan(20);
  const names = new Set(
    flags.flatMap(({ name, negatable }) =>
      negatable ? [`--${name}`, `--no-${name}`] : [`--${name}`],
    ),
  );
  const ofBalance = readFileSync(
    new URL("../../src/upstreams/balanceoptions.ts", import.meta.url),
    "utf8",
  ).matchAll(/^ {2}(\w+)\??: /gm);
  const groups: Record<string, string[]> = {
    server: Object.keys(serverSchema),
    pool: Object.keys(poolSchema),
    balance: Array.from(ofBalance, ([, name = ""]) => name),
  };
  for (const row of rows) {
    const [, , , here = ""] = row.split("|");
    for (const [, code = ""] of here.matchAll(/`([^`]+)`/g)) {
      const [flag] = /^--[\w-]+/.exec(code) ?? [];
      if (flag !== undefined) {
        expect(names, row).toContain(flag);
        continue;
      }
      const [, group = "", members = ""] = /^(\w+): \{ (.*) \}$/.exec(code) ?? [];
      const known = groups[group];
      if (known === undefined) {
        const option = /^\w+/.exec(code)?.[0];
        expect([...Object.keys(proxySchema), "routes"], row).toContain(option);
        continue;
      }
      for (const [member] of members.matchAll(/\b\w+(?=[:,]|$)/g)) {
        expect(known, row).toContain(member);
      }
    }
  }
});

test("each code block that is assigned to this file is run", () =>
  expectAllRun("comingfromnginx.test.ts"));
