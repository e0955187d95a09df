/** The options whose cost is measured, each on its own. */
import { balance } from "../../src/upstreams/balance.ts";
import type { CreateProxyOptions } from "../../src/proxy.ts";

export interface Part {
  /** The name on the command line. */
  readonly name: string;
  readonly title: string;
  /** The group of the table. */
  readonly group: "options" | "hooks and interceptors" | "observation" | "several upstreams";
  options(target: string): Omit<CreateProxyOptions, "target"> & {
    target?: CreateProxyOptions["target"];
  };
}

export const PARTS: readonly Part[] = [
  {
    name: "no-deadlines",
    title: "`timeout: 0, idleTimeout: 0`",
    group: "options",
    options: () => ({ timeout: 0, idleTimeout: 0 }),
  },
  {
    name: "no-retry",
    title: "`retry: false`",
    group: "options",
    options: () => ({ retry: false }),
  },
  {
    name: "no-xfwd",
    title: "`xfwd: false`",
    group: "options",
    options: () => ({ xfwd: false }),
  },
  {
    name: "forwarded",
    title: '`xfwd: "forwarded"`',
    group: "options",
    options: () => ({ xfwd: "forwarded" }),
  },
  {
    name: "trust",
    title: '`trustProxy: ["127.0.0.0/8"]`',
    group: "options",
    options: () => ({ trustProxy: ["127.0.0.0/8"] }),
  },
  { name: "via", title: '`via: "edge"`', group: "options", options: () => ({ via: "edge" }) },
  {
    name: "headers",
    title: '`headers: { "x-a": "1" }`',
    group: "options",
    options: () => ({ headers: { "x-a": "1" } }),
  },
  {
    name: "path",
    title: '`pathRewrite: { "^/api": "" }`',
    group: "options",
    options: () => ({ pathRewrite: { "^/api": "" } }),
  },
  {
    name: "attempt-timeout",
    title: "`attemptTimeout: 5000`",
    group: "options",
    options: () => ({ attemptTimeout: 5000 }),
  },
  {
    name: "body-limit",
    title: "`bodyLimit: 1048576`",
    group: "options",
    options: () => ({ bodyLimit: 1_048_576 }),
  },
  {
    name: "mirror",
    title: "`mirror`, to the same upstream",
    group: "options",
    options: (target) => ({ mirror: target }),
  },
  {
    name: "on-request",
    title: "`onRequest() {}`",
    group: "hooks and interceptors",
    options: () => ({ onRequest() {} }),
  },
  {
    name: "on-response",
    title: "`onResponse() {}`",
    group: "hooks and interceptors",
    options: () => ({ onResponse() {} }),
  },
  {
    name: "request-interceptor",
    title: "`interceptors: { request: [one] }`",
    group: "hooks and interceptors",
    options: () => ({
      interceptors: { request: [(next) => (request, scope) => next(request, scope)] },
    }),
  },
  {
    name: "attempt-interceptor",
    title: "`interceptors: { attempt: [one] }`",
    group: "hooks and interceptors",
    options: () => ({
      interceptors: { attempt: [(next) => (request, scope) => next(request, scope)] },
    }),
  },
  {
    name: "on-request-end",
    title: "`onRequestEnd() {}`",
    group: "observation",
    options: () => ({ onRequestEnd() {} }),
  },
  {
    name: "server-timing",
    title: "`serverTiming: true`",
    group: "observation",
    options: () => ({ serverTiming: true }),
  },
  {
    name: "trace",
    title: "`startTrace: true`",
    group: "observation",
    options: () => ({ startTrace: true }),
  },
  {
    name: "balance",
    title: "`target: balance([three])`",
    group: "several upstreams",
    options: (target) => {
      const { port } = new URL(target);
      // On Linux, each address in 127.0.0.0/8 leads to this machine.
      return { target: balance([1, 2, 3].map((host) => `http://127.0.0.${host}:${port}`)) };
    },
  },
];
