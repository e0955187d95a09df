/**
 * The files for deployments agree with the command. `npm run check:manifests` checks them against the schema of
 * Kubernetes, and `npm run test:deploy` runs them.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Miniflare, type MiniflareOptions } from "miniflare";
import { afterAll, describe, expect, test } from "vitest";
import { checkConfig } from "../../command/config/checkconfig.ts";
import { checkLine } from "../../command/config/checkline.ts";
import { parse } from "../../command/flags/parse.ts";
import { parseAdminAddress } from "../../command/status/adminaddress.ts";
import type { ReadConfig } from "../../command/config/settings.ts";
import manifest from "../../package.json" with { type: "json" };
import { command, upstream } from "../command/_command.ts";
import { startProgram } from "../helpers/program.ts";
import { listen } from "../helpers/serve.ts";
import { within } from "../helpers/wait.ts";

const examples = fileURLToPath(new URL("../../examples", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** The milliseconds that the command may need after `stopTimeout` to answer the cut requests, and to write its log. */
const LAST_WORDS = 2000;

const read = (file: string): string => readFileSync(join(examples, file), "utf8");

interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
}

interface Container {
  readonly image: string;
  readonly args: readonly string[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly readinessProbe: Probe;
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly lifecycle: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
  readonly env: readonly { readonly name: string }[];
}

/** The members of all kinds of manifests that the tests read. */
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly data: Readonly<Record<string, string>>;
  readonly spec: {
    readonly replicas: number;
    readonly maxUnavailable: number;
    readonly strategy: { readonly rollingUpdate: { readonly maxUnavailable: number } };
    readonly selector: { readonly matchLabels?: object };
    readonly podSelector: { readonly matchLabels: object };
    readonly ports: readonly { readonly port: number; readonly targetPort: string }[];
    readonly ingress: readonly { readonly ports: readonly { readonly port: string }[] }[];
    readonly template: {
      readonly metadata: { readonly labels: object };
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly securityContext: { readonly runAsUser: number };
        readonly containers: readonly [Container];
        readonly volumes: readonly {
          readonly name: string;
          readonly configMap: { readonly name: string };
        }[];
      };
    };
  };
}

/** Reads the manifests with Bun's parser of YAML, by kind. */
function readManifests(): Record<string, Manifest> {
  const texts = readdirSync(join(examples, "kubernetes")).map((file) => read(`kubernetes/${file}`));
  const script = "console.log(JSON.stringify(JSON.parse(process.argv[1]).map(Bun.YAML.parse)))";
  const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url));
  const { stdout } = spawnSync(bun, ["-e", script, JSON.stringify(texts)], { encoding: "utf8" });
  const parsed = JSON.parse(stdout) as Manifest[];
  return Object.fromEntries(parsed.map((each) => [each.kind, each]));
}

/** Writes a copy of a config file, with free ports and the tests' upstream as target, and returns its path. */
function localize(config: ReadConfig): string {
  const file = join(folder, "fetchway.config.json");
  const { server, routes = [], ...rest } = config;
  const local = {
    ...rest,
    server: { ...server, host: "127.0.0.1", port: 0, log: "off" },
    routes: routes.map((route) => Object.assign({}, route, { target: upstream.url })),
  };
  writeFileSync(file, JSON.stringify(local));
  return file;
}

describe("the manifests for Kubernetes", () => {
  const manifests = readManifests();
  const { Deployment, Service, ConfigMap, PodDisruptionBudget, NetworkPolicy } =
    manifests as Record<
      "Deployment" | "Service" | "ConfigMap" | "PodDisruptionBudget" | "NetworkPolicy",
      Manifest
    >;
  const pod = Deployment.spec.template;
  const [container] = pod.spec.containers;
  const config = JSON.parse(ConfigMap.data["fetchway.config.json"] ?? "") as ReadConfig;
  const [http, admin] = container.ports;
  /** The container's arguments, with the address that Kubernetes inserts. */
  const args = container.args.map((each) => each.replace("$(POD_IP)", "10.0.0.7"));

  test("the command accepts the config file and the arguments of the manifests", () => {
    expect(Object.keys(manifests)).toHaveLength(5);
    expect(checkConfig(config)).toEqual([]);
    const line = parse(args);
    expect(checkLine(line).problems).toEqual([]);
    expect(line.given.line.config).toBe("/etc/fetchway/fetchway.config.json");
    const [mount] = container.volumeMounts;
    expect(mount?.mountPath).toBe("/etc/fetchway");
    const volume = pod.spec.volumes.find(({ name }) => name === mount?.name);
    expect(volume?.configMap.name).toBe(ConfigMap.metadata.name);
    expect(container.env.map(({ name }) => name)).toContain("POD_IP");
    // The image of the pods has this version as its tag, and names no registry.
    expect(container.image).toBe(`fetchway:${manifest.version}`);
  });

  test("the ports of the manifests are those on which the command listens", () => {
    expect(http).toEqual({ name: "http", containerPort: config.server?.port });
    expect(config.server?.host).toBe("0.0.0.0");
    const address = parseAdminAddress(args[args.indexOf("--admin") + 1] ?? "");
    expect(address).toEqual({ host: "10.0.0.7", port: admin?.containerPort });
    expect(Service.spec.ports.map(({ targetPort }) => targetPort)).toEqual(["http"]);
    expect(
      NetworkPolicy.spec.ingress.flatMap(({ ports }) => ports.map(({ port }) => port)),
    ).toEqual(["http", "admin"]);
  });

  test("the selectors select the pods of the Deployment", () => {
    const { labels } = pod.metadata;
    expect(Deployment.spec.selector.matchLabels).toEqual(labels);
    expect(Service.spec.selector).toEqual(labels);
    expect(PodDisruptionBudget.spec.selector.matchLabels).toEqual(labels);
    expect(NetworkPolicy.spec.podSelector.matchLabels).toEqual(labels);
  });

  test("the grace period is long enough for the command to finish requests", () => {
    const grace = pod.spec.terminationGracePeriodSeconds * 1000;
    const wait = container.lifecycle.preStop.sleep.seconds * 1000;
    expect(config.server?.stopTimeout).toBeGreaterThan(0);
    expect(grace).toBeGreaterThanOrEqual(wait + (config.server?.stopTimeout ?? 0) + LAST_WORDS);
    expect(wait).toBeGreaterThan(0);
    // Enough pods run during a rolling update, and while a node is drained.
    expect(Deployment.spec.strategy.rollingUpdate.maxUnavailable).toBe(0);
    expect(PodDisruptionBudget.spec.maxUnavailable).toBeLessThan(Deployment.spec.replicas);
  });

  test("the command answers the probes, and the readiness probe fails while the command stops", async () => {
    let finish: (() => void) | undefined;
    upstream.handler = (req, res) => {
      if (req.url === "/held") finish = () => res.end("held");
      else res.end(req.url);
    };
    const proxy = command(`--config ${localize(config)} --admin 127.0.0.1:0`);
    const origin = await proxy.origin();
    const [, page = ""] = await proxy.says(/status page: (\S+)\//);
    const { readinessProbe, startupProbe, livenessProbe } = container;
    const probe = async ({ httpGet: { path, port } }: Probe): Promise<number> => {
      expect(port).toBe("admin");
      // The kubelet sends the pod's address as Host.
      return (await fetch(page + path, { headers: { host: "10.0.0.7:9100" } })).status;
    };
    for (const each of [readinessProbe, startupProbe, livenessProbe]) {
      expect(await probe(each)).toBe(200);
    }
    expect(await (await fetch(`${origin}/api/x`)).text()).toBe("/x");
    const held = fetch(`${origin}/held`);
    while (finish === undefined) await (await fetch(`${origin}/`)).text();
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping/);
    expect([await probe(readinessProbe), await probe(livenessProbe)]).toEqual([503, 200]);
    finish();
    expect(await (await held).text()).toBe("held");
    expect(await within(proxy.exit, "the exit")).toBe(0);
  });
});

describe("the container file", () => {
  const file = read("container/Containerfile");
  /** The text of the last stage, with continued lines joined. */
  const stage =
    file
      .replaceAll("\\\n", "")
      .split(/^FROM /m)
      .at(-1) ?? "";
  const instruction = (name: string): string =>
    new RegExp(`^${name} (.+)$`, "m").exec(stage)?.[1]?.trim() ?? "";
  const config = JSON.parse(read("container/fetchway.config.json")) as ReadConfig;

  test("the container starts the command of the package, with its config file, and without a shell", () => {
    const [program, script] = JSON.parse(instruction("ENTRYPOINT")) as string[];
    expect([program, script]).toEqual([
      "node",
      manifest.bin.fetchway.replace("./", "node_modules/fetchway/"),
    ]);
    const line = parse(JSON.parse(instruction("CMD")) as string[]);
    expect(checkLine(line).problems).toEqual([]);
    expect(stage).toContain(`COPY ${line.given.line.config} ./`);
    expect(checkConfig(config)).toEqual([]);
    expect(config.server?.host).toBe("0.0.0.0");
    expect(instruction("EXPOSE")).toBe(String(config.server?.port));
    expect(instruction("STOPSIGNAL")).toBe("SIGTERM");
    // By default, Docker kills a container 10 s after it was told to stop.
    expect((config.server?.stopTimeout ?? Infinity) + LAST_WORDS).toBeLessThanOrEqual(10_000);
  });

  test("the container runs as the user of the manifests, on the version of Node that the tests use", () => {
    const [user = ""] = instruction("USER").split(":");
    expect(Number(user)).toBe(
      readManifests()["Deployment"]?.spec.template.spec.securityContext.runAsUser,
    );
    expect(file).toContain(`\nARG NODE_IMAGE=node:${manifest.devDependencies.node}-slim\n`);
    const images = Array.from(file.matchAll(/^FROM (\S+)/gm), ([, image]) => image);
    expect(new Set(images)).toEqual(new Set(["${NODE_IMAGE}"]));
  });

  test("the health check of the container succeeds only while the command is ready", async () => {
    const check = JSON.parse(
      /CMD (\[.+\])/.exec(instruction("HEALTHCHECK"))?.[1] ?? "",
    ) as string[];
    const page = `127.0.0.1:${String(config.server?.admin)}`;
    expect(check[0]).toBe("node");
    // Docker before 25 and podman 4 refuse other flags.
    expect(instruction("HEALTHCHECK").match(/--[a-z-]+(?==)/g)).toEqual([
      "--interval",
      "--timeout",
      "--start-period",
      "--retries",
    ]);
    expect(check.at(-1)).toContain(`http://${page}/readyz`);
    let isReady = true;
    const server = createServer((req, res) => {
      res.writeHead(req.url === "/readyz" && isReady ? 200 : 503).end();
    });
    const port = await listen(server);
    const run = (): Promise<number | null> => {
      const script = (check.at(-1) ?? "").replace(page, `127.0.0.1:${port}`);
      const program = startProgram("node", ["-e", script]);
      return program.ended().then(() => program.code() ?? null);
    };
    expect(await run()).toBe(0);
    isReady = false;
    expect(await run()).toBe(1);
    server.close();
    expect(await run()).toBe(1);
  });
});

test("the example gateway for Workers passes a dry run of the deployment, and sends requests to the bound Worker and to the server", async () => {
  const config = join(examples, "workers/wrangler.toml");
  const out = join(folder, "worker");
  const source = `fetchway:${join(examples, "../runtimes/workerd.ts")}`;
  await using program = startProgram(
    "wrangler",
    ["deploy", "--dry-run", "--config", config, "--outdir", out, "--alias", source],
    { WRANGLER_SEND_METRICS: "false", CI: "1" },
  );
  await program.printed(/--dry-run: exiting now/);
  expect(program.output()).toMatch(/env\.API \(api\)\s+Worker/);
  expect(read("workers/wrangler.toml")).toContain('pattern = "shop.example.com/*"');

  upstream.handler = (req, res) => res.end(`server ${req.url}`);
  const toWorker = (name: string, contents: string, more: object = {}): object => ({
    config: {
      name,
      compatibilityDate: "2026-10-01",
      compatibilityFlags: ["enable_request_signal"],
      manifest: {
        mainModule: "index.mjs",
        modulesRoot: "/",
        modules: { "index.mjs": { type: "esm", contents } },
      },
      ...more,
    },
  });
  const bound = `export default {
    fetch: (request) => new Response("worker " + new URL(request.url).pathname),
  };`;
  const miniflare = new Miniflare({
    host: "127.0.0.1",
    port: 0,
    cf: false,
    telemetry: { enabled: false },
    workers: [
      toWorker("gateway", readFileSync(join(out, "index.js"), "utf8"), {
        env: {
          API: { type: "worker", worker: "api" },
          ORIGIN: { type: "json", value: upstream.url },
        },
      }),
      toWorker("api", bound),
    ],
  } as MiniflareOptions);
  try {
    const url = await miniflare.ready;
    const ask = async (path: string): Promise<string> => (await fetch(new URL(path, url))).text();
    expect(await ask("/api/orders")).toBe("worker /orders");
    expect(await ask("/apis?a%2Fb")).toBe("server /apis?a%2Fb");
  } finally {
    await miniflare.dispose();
  }
});
