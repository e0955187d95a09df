import { once } from "node:events";
import { readFileSync } from "node:fs";
import { get, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { flags } from "../../command/flags/flags.ts";
import { renderHelp } from "../../command/flags/help.ts";
import { clientLimitSchema, recordSchema } from "../../command/flags/commandoptions.ts";
import { poolDefaults } from "../../src/options/pooloptions.ts";
import { routeSchema } from "../../command/flags/severalupstreams.ts";
import { defaults } from "../../src/options/proxyoptions.ts";
import { Command, command, listening, programs, root, upstream } from "./_command.ts";

/** Sends a request, and returns it as the upstream saw it. */
async function ask(
  url: string,
  init?: RequestInit,
): Promise<{ url: string; headers: Record<string, string> }> {
  upstream.handler = (req, res) => res.end(JSON.stringify({ url: req.url, headers: req.headers }));
  const response = await fetch(url, init);
  return (await response.json()) as { url: string; headers: Record<string, string> };
}

describe("the command with a target", () => {
  test("forwards a request to the target, and prints two lines", async () => {
    upstream.handler = async (req, res) => {
      res.writeHead(201, "Made", { "x-method": req.method, "x-url": req.url });
      res.end(`got ${await text(req)}`);
    };
    const { proxy, origin } = await listening(`'${upstream.url}/base?key=s3cret' --demo`);
    const banner = `fetchway listens on ${origin} and forwards to ${upstream.url}/base?…\n  curl -i ${origin}/\n`;
    expect(proxy.stdout).toBe(banner);
    const response = await fetch(`${origin}/a%2Fb?c=d`, { method: "PATCH", body: "hello" });
    expect([response.status, response.statusText]).toEqual([201, "Made"]);
    expect(response.headers.get("x-method")).toBe("PATCH");
    expect(response.headers.get("x-url")).toBe("/base/a%2Fb?key=s3cret&c=d");
    expect(await response.text()).toBe("got hello");
    expect(proxy.stdout + proxy.stderr).toBe(banner);
  });

  test("flags about headers and paths take effect in the proxy", async () => {
    const { origin } = await listening(
      `${upstream.url} --header 'X-Set: a: b' --header=cookie: --filter-headers 'x-one, x-two' \
       --filter-headers=x-three --forward-headers=proxy-authorization --xfwd=forwarded \
       --host-header shop.example --trust-proxy true --via edge --strip-prefix /api \
       --path-rewrite '^/old/=/new/' --path-rewrite x+=y=z`,
    );
    const names = ["cookie", "x-one", "x-two", "x-three", "x-four", "proxy-authorization"];
    const sent = Object.fromEntries(names.map((name) => [name, "sent"]));
    const { url, headers } = await ask(`${origin}/api/old/xx`, {
      headers: { ...sent, forwarded: "for=1.2.3.4" },
    });
    expect(url).toBe("/new/y=z");
    expect(headers).toMatchObject({ "x-set": "a: b", host: "shop.example", via: "1.1 edge" });
    expect(headers["forwarded"]).toMatch(/^for=1\.2\.3\.4, for=127\.0\.0\.1;/);
    expect(names.filter((name) => name in headers)).toEqual(["x-four", "proxy-authorization"]);
  });

  test.each(["--no-change-origin --no-xfwd", "--change-origin false --xfwd false"])(
    "with %s, the upstream gets the client's Host and no forwarding fields",
    async (line) => {
      const { origin } = await listening(`${line} ${upstream.url}`);
      const { headers } = await ask(origin);
      expect(headers["host"]).toBe(new URL(origin).host);
      expect(Object.keys(headers).join()).not.toContain("forwarded");
    },
  );

  test.each(Object.keys(programs) as (keyof typeof programs)[])(
    "on %s, the scheme of a request target in absolute form is not believed",
    async (runtime) => {
      const proxy = new Command(`--log off ${upstream.url} --port 0`, [], programs[runtime]);
      const { port } = new URL(await proxy.origin());
      upstream.handler = (req, res) => res.end(req.headers["x-forwarded-proto"]);
      const [answer] = (await once(get({ port, path: "https://shop.test/" }), "response")) as [
        IncomingMessage,
      ];
      const body = await text(answer);
      await proxy.kill();
      if (runtime === "deno") expect(answer.statusCode).toBe(421);
      else expect([answer.statusCode, body]).toEqual([200, "http"]);
    },
  );

  test("the authority of a request target in absolute form takes precedence over Host (RFC 9112 §3.2.2)", async () => {
    const { origin } = await listening(`--no-change-origin ${upstream.url}`);
    upstream.handler = (req, res) => res.end(JSON.stringify([req.url, req.headers]));
    const asked = get({
      port: new URL(origin).port,
      path: "http://shop.test:8080/x?y",
      headers: { host: "other.test" },
    });
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    const [path, headers] = JSON.parse(await text(answer)) as [string, Record<string, string>];
    expect(path).toBe("/x?y");
    expect(headers).toMatchObject({
      host: "shop.test:8080",
      "x-forwarded-host": "shop.test:8080",
      "x-forwarded-port": "8080",
    });
  });

  test("flags about limits and connections take effect in the proxy", async () => {
    let [now, most] = [0, 0];
    upstream.handler = (req, res) => {
      most = Math.max(most, ++now);
      if (req.url !== "/never") setTimeout(() => res.end(String(now--)), 20);
    };
    const { origin } = await listening(
      `${upstream.url} --body-limit=1k --timeout=3000 --connect-timeout=3000 --idle-timeout=3000 \
       --max-sockets=1 --max-free-sockets=0 --free-socket-timeout=1000`,
    );
    const post = (size: number): Promise<Response> =>
      fetch(origin, { method: "POST", body: "x".repeat(size) });
    const responses = await Promise.all([post(1024), post(1024), post(1025)]);
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 413]);
    expect(most).toBe(1);
    expect((await fetch(`${origin}/never`)).status).toBe(504);
  });
});

describe("version and help", () => {
  test.each(["--version", "-v"])("%s prints the version of the package", async (flag) => {
    const found = readFileSync(new URL("package.json", root), "utf8");
    const { version } = JSON.parse(found) as { version: string };
    const proxy = command(flag);
    expect(await proxy.exit).toBe(0);
    expect(proxy.stdout).toBe(`${version}\n`);
  });

  test("--help fits on a screen, and describes each flag correctly", () => {
    const lines = renderHelp(false).split("\n");
    expect(lines.length).toBeLessThanOrEqual(23);
    for (const line of lines) expect(line.length, line).toBeLessThanOrEqual(80);
    const shown = lines.flatMap((line) => {
      const match = /^ {2}(-\w, | {4})--(no-)?([\w-]+)( \S+)?.*?(?:\(default (.*)\))?$/.exec(line);
      return match === null ? [] : [match.slice(1)];
    });
    expect(shown.length).toBeGreaterThan(8);
    for (const [short = "", no, name, , preset] of shown) {
      const flag = flags.find((each) => each.name === name);
      expect(flag, name).toBeDefined();
      expect(short.trim()).toBe(flag?.short === undefined ? "" : `-${flag.short},`);
      if (no !== undefined) expect(flag?.negatable, name).toBe(true);
      else if (preset !== undefined) expect(preset).toBe(String(flag?.fallback));
    }
  });

  test("--help all lists every option that a flag can set, with its default", async () => {
    const proxy = command("--help all --bogus");
    expect(await proxy.exit).toBe(0);
    const shown = new Map<string, string>();
    for (const line of proxy.stdout.split("\n")) {
      expect(line.length).toBeLessThanOrEqual(100);
      const name = /^ {2}(?:-\w, | {4})--(?:\[no-\])?([\w-]+) /.exec(line)?.[1];
      if (name !== undefined) shown.set(name, /\(default (.*)\)$/.exec(line)?.[1] ?? "false");
    }
    const expected = new Map([
      ["port", "3000"],
      ["workers", "1"],
      ["host", "127.0.0.1"],
      ["stop-timeout", "10000"],
      ["worker-timeout", "10000"],
      ["log", "auto"],
      ...[
        "route",
        "when-method",
        "when-header",
        "when-query",
        "policy",
        "sticky-secret",
        "check",
        "resolve",
        "config",
        "demo",
        "inspect",
        "inspect-header",
        "stats",
        "admin",
        "help",
        "version",
      ].map((name) => [name, "false"] as const),
    ]);
    // `log` of `createProxy` has no flag: the command's `--log` is another option.
    const unsayable =
      /^(?:on[A-Z].*|clientAddress|signal|fetch|transport|interceptors|waitUntil|log)$/;
    const renamed: Record<string, string> = {
      headers: "header",
      route: "route-name",
      host: "host-header",
      socketTTL: "socket-ttl",
      cookieDomainRewrite: "cookie-domain",
      cookiePathRewrite: "cookie-path",
    };
    const add = (
      option: string,
      preset: string | number | boolean | object | undefined,
      name = renamed[option],
    ): void => {
      const kebab = option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      const value = typeof preset === "object" ? "true" : `${preset ?? false}`;
      expected.set(name ?? kebab, Array.isArray(preset) ? preset.join(",") : value);
    };
    const { timeout, ...pool } = {
      ...poolDefaults,
      maxSockets: "by ulimit -n",
      socketPath: undefined,
    };
    add("proxyProtocol", false, "send-proxy-protocol");
    add("timeout", timeout, "socket-timeout");
    for (const [option, preset] of Object.entries(pool)) add(option, preset);
    const own = [
      "proxyProtocol",
      "socketMode",
      "cert",
      "key",
      "ca",
      "insecure",
      "redirectHttp",
      "cors",
      "corsOrigin",
    ];
    for (const option of own) add(option, false);
    const others = { ...clientLimitSchema, ...recordSchema };
    for (const [option, { default: preset }] of Object.entries(others)) add(option, preset);
    const presets: Record<string, string | number | boolean | object> = defaults;
    for (const option of Object.keys(routeSchema)) {
      if (!unsayable.test(option)) add(option, presets[option]);
    }
    expect(Object.fromEntries(shown)).toEqual(Object.fromEntries(expected));
  });
});
