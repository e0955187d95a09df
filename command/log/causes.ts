/** Explains the failures of requests as the library does, with the names of the flags. */
import { ProxyError } from "#fetchway";
import { type Diagnosis, diagnoseError } from "#fetchway/errors";

/** The flags whose names do not follow from those of the options. */
const FLAGS: Readonly<Record<string, string>> = {
  "pool.timeout": "--socket-timeout",
  "tls: { ca } of the target": "--ca <file>",
  "tls: { rejectUnauthorized: false }": "--insecure",
};

/**
 * The advice about the limits of the command's own server, by the status with which a limit refuses a request, or by the cause
 * if several limits have the same status.
 */
const SERVER_LIMITS: Readonly<Record<string, string>> = {
  408: "is the client stuck? see --headers-timeout and --body-timeout",
  431: "raise --max-header-size or --max-headers-count to let it pass",
  503: "raise --max-connections or ulimit -n",
  "all connections of this address are in use":
    "raise --max-per-address, or name a proxy in --trust-proxy",
};

function nameFlag(option: string): string {
  const name = option.replace(/^.*\./, "");
  return FLAGS[option] ?? `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** Explains to the operator of the command why a request failed. */
export function diagnoseFailure(error: unknown): Diagnosis {
  const diagnosis = diagnoseError(error, nameFlag);
  const isRefused = error instanceof ProxyError && diagnosis.code === "http_request_error";
  if (!isRefused) return diagnosis;
  const { status, message } = error;
  const isMalformed = message.includes("not valid HTTP") && status !== 431;
  const fix = diagnosis.fix ?? SERVER_LIMITS[message] ?? SERVER_LIMITS[status];
  return { ...diagnosis, fix: isMalformed ? undefined : fix };
}

/** Whether an error says that the client disconnected before its response was complete. This is no failure of the proxy. */
export function isClientGone(error: unknown): boolean {
  return error instanceof ProxyError && error.status === 499;
}

/**
 * Whether an error says that the client was slower than `minRate` while other requests waited. This is no failure
 * of the proxy.
 */
export function isClientSlow(error: unknown): boolean {
  return diagnoseFailure(error).code === "client_too_slow";
}

/** Returns the name of an upstream without `http://`, because most upstreams have it. */
export function nameUpstream(upstream: string): string {
  return upstream.replace(/^http:\/\//, "");
}
