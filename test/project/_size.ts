/**
 * Measures the bundles that apps get of this package, and generates the tables of docs/size.md.
 *
 *     node test/project/_size.ts    # prints the tables, and writes them into docs/size.md
 */
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build, type Metafile, type Plugin } from "esbuild";
import { toTable } from "./_readme.ts";

const root = new URL("../../", import.meta.url);

/** A bundle, minified. Sizes are in bytes. */
export interface Bundle {
  readonly gzip: number;
  readonly text: string;
  /** The bytes of each source file in the bundle, by its path in the project, in the order of their code. */
  readonly files: Readonly<Record<string, number>>;
}

/** Leaves out modules that are imported when they are first needed, such as the code for HTTP/2. */
const leaveOutLoadedLater: Plugin = {
  name: "leave-out-loaded-later",
  setup(bundler) {
    bundler.onResolve({ filter: /./ }, ({ kind, path }) =>
      kind === "dynamic-import" ? { path, external: true } : undefined,
    );
  },
};

/**
 * Bundles and minifies code as an app's bundler does.
 * @param code the app's code; it names source files by their path in the project
 * @param runtime the export condition that chooses `#fetchway`
 * @param packages whether the packages that the code imports are part of the bundle
 */
export async function bundleOf(
  code: string,
  runtime = "workerd",
  packages: "bundle" | "external" = "external",
): Promise<Bundle> {
  const { metafile, outputFiles } = await build({
    stdin: { contents: code, resolveDir: root.pathname, loader: "ts" },
    absWorkingDir: root.pathname,
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    logLevel: "silent",
    format: "esm",
    platform: "neutral",
    conditions: [runtime],
    packages,
    external: ["node:*"],
    plugins: [leaveOutLoadedLater],
    target: "es2024",
  });
  const [output] = outputFiles;
  if (output === undefined) throw new Error("no bundle");
  return {
    gzip: zippedLength(output.text),
    text: output.text,
    files: filesOf(metafile),
  };
}

function filesOf({ outputs }: Metafile): Record<string, number> {
  const inputs = Object.values(outputs).flatMap((each) => Object.entries(each.inputs));
  const sizes = inputs.map(([file, { bytesInOutput }]) => [file, bytesInOutput] as const);
  return Object.fromEntries(sizes.filter(([file, bytes]) => bytes > 0 && file !== "<stdin>"));
}

const zippedLength = (text: string): number => gzipSync(text, { level: 9 }).byteLength;

/** The entries, by their name on the page. */
const ENTRIES: readonly (readonly [name: string, entry: string])[] = [
  ["Workers", "workerd"],
  ["any other runtime with `fetch`", "fetch"],
  ["Deno", "deno"],
  ["Bun", "bun"],
  ["Node", "node"],
  ["Node, over undici (which is not counted)", "undici"],
];

/** The other export paths, each with the entry that an app imports as well. */
const ADDITIONS: readonly (readonly [path: string, file: string, entry: string])[] = [
  ["fetchway/upstreams", "src/upstreams/balance.ts", "workerd"],
  ["fetchway/mirror", "src/exchange/mirror.ts", "workerd"],
  ["fetchway/bodies", "src/bodies.ts", "workerd"],
  ["fetchway/streams", "src/streams.ts", "workerd"],
  ["fetchway/rules", "integrations/rules.ts", "workerd"],
  ["fetchway/transport", "src/transport.ts", "workerd"],
  ["fetchway/requests", "src/requests.ts", "workerd"],
  ["fetchway/errors", "src/explain/errors.ts", "workerd"],
  ["fetchway/vite", "integrations/vite.ts", "node"],
];

/** The parts of the bundle for Workers, and who needs them. A file belongs to the first part that matches its path. */
const PARTS: readonly (readonly [name: string, files: RegExp, need: string])[] = [
  [
    "other libraries' options, misspelt names",
    /^src\/(?:options\/foreign|schema\/nearest)/,
    "whoever writes one: the error names the fix",
  ],
  [
    "options: their checks and defaults, and what they compile to",
    /^src\/(?:options\/|schema\/|misuse|plan)/,
    "every app: a wrong option is refused at the start",
  ],
  [
    "the calls, and the order of all steps",
    /^src\/(?:proxy|index)\.ts|^src\/(?:pipeline|upstreams)\//,
    "every request",
  ],
  [
    "`trustProxy`: ranges, and the chain of proxies",
    /^src\/(?:request\/(?:trust|chain)|target\/address|recentmap)/,
    "apps behind another proxy",
  ],
  [
    "apps in this process as targets",
    /^src\/target\/app|inprocess/,
    "service bindings, Durable Objects, apps in tests",
  ],
  ["targets and paths", /^src\/target\//, "every request"],
  ["upgrades", /upgrade|protocols|handshake|tunnel/, "WebSockets"],
  ["`OPTIONS *`, `Max-Forwards`, TRACE", /maxforwards/, "safety: TRACE repeats secrets"],
  ["`startTrace`", /tracecontext/, "apps that trace"],
  [
    "the request: header fields, framing, forwarding fields, `Via`, `Host`",
    /^src\/(?:request|fields)\//,
    "every request",
  ],
  ["errors as responses", /^src\/error|errorresponse/, "every failure"],
  ["cookies of another domain, path or scheme", /response\/cookies/, "apps with sessions"],
  [
    "the response: header fields, `Location`",
    /^src\/response\//,
    "every response; redirects stay at the proxy by default",
  ],
  ["deadlines and abort", /^src\/transport\//, "every request"],
  ["`followRedirects`", /exchange\/redirect/, "apps whose upstream moves"],
  ["kept bodies", /body\/replay/, "`followRedirects`, `retry`"],
  ["attempts, and when to send again", /exchange\/(?:repeat|send)/, "every request"],
  ["`onRequestEnd`, `serverTiming`", /observation|body\/watched/, "apps with a log or metrics"],
  [
    "hooks and interceptors, `bodyLimit`",
    /exchange\/(?:hooks|interceptor)|body\/limit/,
    "apps that change requests",
  ],
  ["bodies: reading and passing on", /^src\/body\//, "every body"],
  ["sending through `fetch`", /^src\/fetch\//, "every request"],
  ["what only Workers need", /^runtimes\/workerd/, "every request on Workers"],
];

const kilobytes = (bytes: number): string => (bytes / 1000).toFixed(1);

async function entryRows(): Promise<string[][]> {
  const head = ["entry", "`proxyFetch` alone", "all of it"];
  const rows = ENTRIES.map(async ([name, entry]) => {
    const take = (names: string): Promise<Bundle> =>
      bundleOf(`export ${names} from "./runtimes/${entry}.ts"`, entry);
    const [one, all] = [await take("{ proxyFetch }"), await take("*")];
    return [name, kilobytes(one.gzip), kilobytes(all.gzip)];
  });
  return [head, ...(await Promise.all(rows))];
}

async function additionRows(): Promise<string[][]> {
  const rows = ADDITIONS.map(async ([path, file, entry]) => {
    const own = `export * from "./runtimes/${entry}.ts";`;
    const [without, all] = [
      await bundleOf(own, entry),
      await bundleOf(`${own} export * as more from "./${file}";`, entry),
    ];
    return [`\`${path}\``, kilobytes(all.gzip - without.gzip)];
  });
  return [["import", "adds"], ...(await Promise.all(rows))];
}

/** Code that makes the same call with other libraries. */
const PEERS: readonly (readonly [name: string, code: string])[] = [
  ["`proxy` of `hono/proxy`", 'export { proxy } from "hono/proxy"'],
  ["`proxyRequest` of h3", 'export { proxyRequest } from "h3"'],
  ["`proxyFetch` of httpxy", 'export { proxyFetch } from "httpxy"'],
];

async function peerRows(): Promise<string[][]> {
  const rows = PEERS.map(async ([name, code]) => {
    const { gzip } = await bundleOf(code, "workerd", "bundle");
    return [name, kilobytes(gzip)];
  });
  return [["beside it", "size"], ...(await Promise.all(rows))];
}

/** Returns a row for each part: how much smaller the compressed bundle for Workers is without it. Throws if a file has none. */
async function partRows(): Promise<string[][]> {
  const { files, gzip, text } = await bundleOf('export * from "./runtimes/workerd.ts"');
  let end = 0;
  const codes = Object.entries(files).map(([file, bytes]) => {
    const code = text.slice(end, (end += bytes));
    return { part: findPart(file), code };
  });
  if (!text.startsWith("export{", end)) throw new Error("the files are not in this order");
  const rows = PARTS.map((part): [name: string, saved: number, need: string] => {
    const others = codes.filter((each) => each.part !== part).map(({ code }) => code);
    const [name, , need] = part;
    return [name, gzip - zippedLength(others.join("")), need];
  });
  const sorted = rows.toSorted(([, a], [, b]) => b - a);
  return [
    ["part of the entry for Workers", "size", "who needs it"],
    ...sorted.map(([name, saved, need]) => [name, kilobytes(saved), need]),
  ];
}

function findPart(file: string): (typeof PARTS)[number] {
  const part = PARTS.find(([, pattern]) => pattern.test(file));
  if (part === undefined) throw new Error(`${file} belongs to no part in test/project/_size.ts`);
  return part;
}

/** The tables of docs/size.md, by the name of their markers. */
export const renderTables: Readonly<Record<string, () => Promise<string[][]>>> = {
  entries: entryRows,
  additions: additionRows,
  peers: peerRows,
  parts: partRows,
};

const between = (name: string): RegExp =>
  new RegExp(`(<!-- size: ${name} -->\n)([\\s\\S]*?)(<!-- /size -->)`);

/** Returns the cells of a table in the text of a page. */
export function readTable(page: string, name: string): string[][] {
  const lines = (between(name).exec(page)?.[2] ?? "")
    .split("\n")
    .filter((line) => line.startsWith("|"));
  const rows = lines.map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
  return rows.filter(([first = ""]) => !first.startsWith("--"));
}

if (import.meta.main) {
  const page = new URL("docs/size.md", root);
  let text = readFileSync(page, "utf8");
  for (const [name, render] of Object.entries(renderTables)) {
    const table = toTable(await render());
    process.stdout.write(`${table}\n`);
    text = text.replace(
      between(name),
      (_, open: string, _old, close: string) => `${open}\n${table}\n${close}`,
    );
  }
  writeFileSync(page, text);
}
