import { createHash } from "node:crypto";
import { isIP } from "node:net";
import { pathOf } from "#fetchway/requests";
import type { Server } from "srvx";
import { UsageError } from "../flags/read.ts";
import { openOn } from "../serve/loopback.ts";
import { loadServe } from "../serve/permission.ts";
import type { AdminAddress } from "./adminaddress.ts";
import { describeOverall, type Overall, type Readiness } from "./condition.ts";
import { type Metrics, NO_ROUTE, type Snapshot } from "./metrics.ts";
import { PROMETHEUS_TYPE, renderMetrics } from "./prometheus.ts";
import { sumOf } from "./recent.ts";
import { statusPage } from "./statuspage.ts";

/** Milliseconds between two events of the page. */
const INTERVAL = 1000;
/** The number of pages that may be open at the same time. */
const MAX_PAGES = 20;

const SECURITY_FIELDS = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
} as const;

/** The state that the status page and the health checks report. */
export interface StatusSource {
  readonly metrics: Metrics;
  readonly readiness: () => Readiness;
  /** Updates the counters, if they come from other processes. */
  readonly refresh?: () => Promise<void>;
}

/**
 * Answers requests for the status: a page at `/` with its events at `/events`, `/stats` as JSON, `/metrics` for
 * Prometheus, `/healthz` and `/readyz`. No request changes any state.
 */
export class StatusPages {
  readonly #source: StatusSource;
  readonly #host: string;
  readonly #pages: Set<ReadableStreamDefaultController<Uint8Array>> = new Set();
  readonly #policy: string = createPolicy(statusPage);
  #timer: ReturnType<typeof setInterval> | undefined;

  /** @param host the host name by which the pages may be requested, in addition to addresses and `localhost` */
  constructor(source: StatusSource, host: string) {
    this.#source = source;
    this.#host = host.toLowerCase();
  }

  readonly answer = (request: Request): Response => {
    // Do not parse the URL: if the client sends no usable `Host`, Bun and Deno build a URL that no parser accepts.
    const pathname = pathOf(request.url).replace(/\?.*/s, "");
    if (request.method !== "GET" && request.method !== "HEAD") {
      return toPlainText("Method Not Allowed\n", 405, { allow: "GET, HEAD" });
    }
    // Health checks of load balancers send arbitrary Host names, and the answers reveal nothing.
    if (pathname === "/healthz") return toPlainText("ok\n");
    if (pathname === "/readyz") {
      const readiness = this.#source.readiness();
      return toPlainText(`${readiness}\n`, readiness === "ready" ? 200 : 503);
    }
    if (!isOwnAuthority(request.headers.get("host"), this.#host)) {
      return toPlainText(
        "Misdirected Request: open this page by an IP address, localhost or the host of --admin\n",
        421,
      );
    }
    switch (pathname) {
      case "/":
        return new Response(statusPage, {
          headers: {
            ...SECURITY_FIELDS,
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": this.#policy,
          },
        });
      case "/events":
        // A page of another origin cannot read the events, but could open so many streams that the status page gets none.
        if (/^(?:cross|same)-site$/.test(request.headers.get("sec-fetch-site") ?? "")) {
          return toPlainText("Forbidden: only the status page may read its events\n", 403);
        }
        return request.method === "HEAD" ? toEventResponse(null) : this.#openEvents();
      case "/stats":
        return new Response(`${JSON.stringify(this.#describe())}\n`, {
          headers: { ...SECURITY_FIELDS, "content-type": "application/json" },
        });
      case "/metrics":
        return new Response(renderMetrics(this.#source.metrics), {
          headers: { ...SECURITY_FIELDS, "content-type": PROMETHEUS_TYPE },
        });
      default:
        return toPlainText("Not Found: see /, /stats, /metrics, /healthz and /readyz\n", 404);
    }
  };

  /** The number of pages that are open. */
  get openPages(): number {
    return this.#pages.size;
  }

  #openEvents(): Response {
    if (this.#pages.size >= MAX_PAGES) return toPlainText("too many pages are open\n", 503);
    let page: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        page = controller;
        this.#pages.add(controller);
        controller.enqueue(this.#renderEvent());
        this.#timer ??= setInterval(() => this.#sendEvents(), INTERVAL);
      },
      cancel: () => this.#closePage(page),
    });
    return toEventResponse(body);
  }

  #closePage(page: ReadableStreamDefaultController<Uint8Array>): void {
    this.#pages.delete(page);
    if (this.#pages.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #sendEvents(): void {
    const event = this.#renderEvent();
    for (const page of this.#pages) {
      // Skip a page that has not yet read the previous event.
      if ((page.desiredSize ?? 0) <= 0) continue;
      try {
        page.enqueue(event);
      } catch {
        this.#closePage(page);
      }
    }
  }

  #renderEvent(): Uint8Array {
    return encoder.encode(`data: ${JSON.stringify(this.#describe())}\n\n`);
  }

  #describe(): Snapshot & { readonly ready: boolean; readonly overall: Overall } {
    const snapshot = this.#source.metrics.snapshot();
    const readiness = this.#source.readiness();
    const { recent, upstreams, routes } = snapshot;
    const overall = describeOverall({
      readiness,
      requests: sumOf(recent.requests),
      failed: sumOf(recent.failed),
      serverErrors: recent.statuses["5xx"] ?? 0,
      upstreams: upstreams.map(({ condition }) => condition.state),
      routes: routes.flatMap(({ name, condition }) => (name === NO_ROUTE ? [] : condition.state)),
    });
    return { ...snapshot, ready: readiness === "ready", overall };
  }
}

const encoder = new TextEncoder();

function toPlainText(text: string, status = 200, fields: Record<string, string> = {}): Response {
  return new Response(text, {
    status,
    headers: { ...SECURITY_FIELDS, "content-type": "text/plain; charset=utf-8", ...fields },
  });
}

function toEventResponse(body: ReadableStream<Uint8Array> | null): Response {
  return new Response(body, {
    headers: { ...SECURITY_FIELDS, "content-type": "text/event-stream" },
  });
}

/**
 * Whether `Host` names this server by an address, by `localhost`, or by the configured name. If the name of another site
 * resolves to this address ("DNS rebinding"), a page of that site can send requests here under its own name, and would be
 * allowed to read the responses.
 */
export function isOwnAuthority(authority: string | null, name: string): boolean {
  const [, host = ""] = /^(\[[^\]]*\]|[^:]*)(?::\d*)?$/.exec(authority?.toLowerCase() ?? "") ?? [];
  if (host === "localhost" || host === name) return true;
  return isIP(host.replace(/^\[|\]$/g, "")) !== 0;
}

/**
 * Creates the Content-Security-Policy of the page: it allows the page's own style, script and icon, connections to this server,
 * and nothing else.
 */
function createPolicy(page: string): string {
  const hashOf = (tag: string): string => {
    const [, content = ""] = new RegExp(`<${tag}>([^]*?)</${tag}>`).exec(page) ?? [];
    return `'sha256-${createHash("sha256").update(content).digest("base64")}'`;
  };
  return [
    "default-src 'none'",
    `style-src ${hashOf("style")}`,
    `script-src ${hashOf("script")}`,
    "connect-src 'self'",
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

/**
 * Starts the server of the status page.
 * @throws UsageError if it cannot listen there
 */
export async function listenForStatus(
  { host, port }: AdminAddress,
  source: StatusSource,
): Promise<Server> {
  const serve = await loadServe();
  try {
    const pages = new StatusPages(source, host);
    const { refresh } = source;
    const answerFresh = async (request: Request): Promise<Response> => {
      if (/\/(?:stats|metrics)$/.test(pathOf(request.url).replace(/\?.*/s, ""))) await refresh?.();
      return pages.answer(request);
    };
    return await openOn(host, (hostname) =>
      serve({
        fetch: refresh === undefined ? pages.answer : answerFresh,
        port,
        hostname,
        silent: true,
        gracefulShutdown: false,
        bun: { development: false },
      }).ready(),
    );
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const reason = code === "EADDRINUSE" ? "the port is in use, use another" : message;
    throw new UsageError(`--admin ${JSON.stringify(`${host}:${port}`)}: ${reason}`);
  }
}
