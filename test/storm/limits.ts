/** Features that the storm does not use on a host, because the host's server or HTTP client lacks them. */
import { type HostName, ON_NODE } from "../hosts/_hosts.ts";
import { hostVersion, isInRange, type NodeRange } from "../hosts/_node.ts";

/** The features that a plan may use. */
export const FEATURES = [
  "pipelining",
  "pipelined bodies",
  "a pipelined response that breaks off",
  "a client that leaves pipelined requests",
  "a client that leaves is seen while its next upload waits",
  "HTTP/1.0",
  "a body that breaks off for an HTTP/1.0 client",
  "early answers",
  "early answers to HTTP/1.0",
  "interim responses",
  "a FIN is seen while the upstream is silent",
  "a client that has sent a body is seen leaving",
  "kept after an upload",
  "stale connections",
  "a last chunk without its line end",
] as const;
export type Feature = (typeof FEATURES)[number];

interface Limit {
  host: HostName;
  /** The versions of Node that lack the feature; all versions if undefined. */
  node?: NodeRange;
  feature: Feature;
  reason: string;
}

export const limits: readonly Limit[] = [
  ...ON_NODE.map((host): Limit => ({
    host,
    feature: "a client that leaves is seen while its next upload waits",
    reason:
      "Node stops reading from a connection whose upload waits, and so does not notice when the client disconnects",
  })),
  {
    host: "slow",
    feature: "a pipelined response that breaks off",
    reason:
      "srvx leaves a connection open if a web stream fails while its response waits for another",
  },
  {
    host: "slow",
    node: { below: "24" },
    feature: "a client that leaves pipelined requests",
    reason:
      "Node 22 does not inform srvx when a response that waits for another is closed, so that its stream stays open",
  },
  {
    host: "slow",
    feature: "stale connections",
    reason:
      "srvx ends a client's connection, sometimes before the 502, when the stream of its request is cancelled",
  },
  {
    host: "slow",
    feature: "a body that breaks off for an HTTP/1.0 client",
    reason: "srvx closes the connection gracefully, although the body's stream has failed",
  },
  {
    host: "bun",
    feature: "pipelining",
    reason: "Bun.serve closes a connection with pipelined requests",
  },
  {
    host: "bun",
    feature: "early answers to HTTP/1.0",
    reason:
      "Bun.serve may break off a large response that began before an HTTP/1.0 request had ended",
  },
  {
    host: "bun",
    feature: "a last chunk without its line end",
    reason:
      "Bun.serve takes the last chunk for the end of the body, without waiting for the line end that follows it",
  },
  {
    host: "deno",
    feature: "a client that has sent a body is seen leaving",
    reason:
      "after a body that arrived in several packets, Deno.serve does not notice when the client disconnects",
  },
  {
    host: "deno",
    feature: "pipelined bodies",
    reason: "Deno.serve closes a connection after a body that arrived in several packets",
  },
  {
    host: "deno",
    feature: "kept after an upload",
    reason: "Deno.serve closes a connection after a body that arrived in several packets",
  },
  {
    host: "deno",
    feature: "a body that breaks off for an HTTP/1.0 client",
    reason: "Deno.serve closes the connection gracefully, although the body's stream has failed",
  },
  {
    host: "workerd",
    feature: "a body that breaks off for an HTTP/1.0 client",
    reason: "workerd closes the connection gracefully",
  },
  {
    host: "workerd",
    feature: "early answers",
    reason:
      "workerd ends a chunked upload as if it were complete once the upstream has answered it",
  },
  {
    host: "workerd",
    feature: "a FIN is seen while the upstream is silent",
    reason:
      "workerd takes a client's FIN for a half-close, and notices the disconnect only when it writes",
  },
  {
    host: "workerd",
    feature: "stale connections",
    reason:
      "workerd does not report that a connection was stale, so the proxy sends no request again",
  },
];

export function canDo(host: HostName, feature: Feature): boolean {
  return !limits.some(
    (limit) =>
      limit.host === host &&
      limit.feature === feature &&
      (limit.node === undefined || isInRange(hostVersion, limit.node)),
  );
}
