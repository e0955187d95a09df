/** The options whose cost is measured. Each row of the table has one of them. */
import { mirrorTo } from "../../src/exchange/mirror.ts";
import type { CreateProxyOptions } from "../../src/proxy.ts";
import { balance } from "../../src/upstreams/balance.ts";

type Group = "options" | "hooks and interceptors" | "observation" | "several upstreams";

/** The options of a proxy, with another target if the row is about targets. */
type RowOptions = Omit<CreateProxyOptions, "target"> & { target?: CreateProxyOptions["target"] };

export interface Row {
  /** The name on the command line. */
  readonly name: string;
  readonly title: string;
  readonly group: Group;
  /** @param target the URL of the upstream */
  options(target: string): RowOptions;
}

function toRows(
  group: Group,
  rows: Readonly<Record<string, readonly [title: string, options: RowOptions | Row["options"]]>>,
): Row[] {
  return Object.entries(rows).map(([name, [title, options]]) => ({
    name,
    title,
    group,
    options: typeof options === "function" ? options : () => options,
  }));
}

/** Returns several origins of the same upstream: on Linux, each address in 127.0.0.0/8 is an address of this machine. */
function originsOf(target: string, count: number): string[] {
  const { port } = new URL(target);
  return Array.from(
    { length: count },
    (_, i) => `http://127.1.${Math.floor(i / 250)}.${1 + (i % 250)}:${port}`,
  );
}

function chooseInTurn(targets: readonly string[]): () => string {
  let next = 0;
  return () => targets[next++ % targets.length] as string;
}

/** A text as long as two certificates. Its content has no effect, because the upstream has no TLS. */
const AUTHORITY = "A".repeat(4_000);

export const ROWS: readonly Row[] = [
  ...toRows("options", {
    "no-deadlines": ["`timeout: 0, idleTimeout: 0`", { timeout: 0, idleTimeout: 0 }],
    "no-retry": ["`retry: false`", { retry: false }],
    "no-keep-alive": ["`pool: { keepAlive: false }`", { pool: { keepAlive: false } }],
    "no-xfwd": ["`xfwd: false`", { xfwd: false }],
    forwarded: ['`xfwd: "forwarded"`', { xfwd: "forwarded" }],
    trust: ['`trustProxy: ["127.0.0.0/8"]`, no forwarding fields', { trustProxy: ["127.0.0.0/8"] }],
    via: ['`via: "edge"`', { via: "edge" }],
    headers: ['`headers: { "x-a": "1" }`', { headers: { "x-a": "1" } }],
    path: ['`pathRewrite: { "^/api": "" }`', { pathRewrite: { "^/api": "" } }],
    "attempt-timeout": ["`attemptTimeout: 5000`", { attemptTimeout: 5000 }],
    "body-limit": ["`bodyLimit: 1048576`", { bodyLimit: 1_048_576 }],
    mirror: ["`mirror`, to the same upstream", (target) => ({ mirror: mirrorTo(target) })],
  }),
  ...toRows("hooks and interceptors", {
    "on-request": ["`onRequest() {}`", { onRequest() {} }],
    "on-request-field": [
      "`onRequest`, which sets a field",
      { onRequest: (draft) => draft.headers.set("x-a", "1") },
    ],
    "on-response": ["`onResponse() {}`", { onResponse() {} }],
    "on-response-field": [
      "`onResponse`, which sets a field",
      { onResponse: (response) => response.headers.set("x-a", "1") },
    ],
    "request-interceptor": [
      "`interceptors: { request: [one] }`",
      { interceptors: { request: [(next) => (request, scope) => next(request, scope)] } },
    ],
    "attempt-interceptor": [
      "`interceptors: { attempt: [one] }`",
      { interceptors: { attempt: [(next) => (request, scope) => next(request, scope)] } },
    ],
  }),
  ...toRows("observation", {
    "on-request-end": ["`onRequestEnd() {}`", { onRequestEnd() {} }],
    "server-timing": ["`serverTiming: true`", { serverTiming: true }],
    trace: ["`startTrace: true`", { startTrace: true }],
  }),
  ...toRows("several upstreams", {
    balance: [
      "`target: balance([three])`",
      (target) => ({ target: balance(originsOf(target, 3)) }),
    ],
    origins: [
      "`target()` of 1000 origins in turn",
      (target) => ({ target: chooseInTurn(originsOf(target, 1000)) }),
    ],
    object: [
      "`target()`, which writes an object with a `ca` of 4 kB",
      (url) => ({ target: () => ({ url, tls: { ca: AUTHORITY } }) }),
    ],
  }),
];
