/**
 * CORS for development: pages of other origins may read the responses of the proxy.
 * @see https://fetch.spec.whatwg.org/#http-cors-protocol
 */
import { quoteInput, type Kind } from "#fetchway/options";
import { TOKEN } from "#fetchway/requests";
import { toMutable } from "./mutableresponse.ts";

/** Origins as browsers send them in `Origin`: in lower case, without a default port, and without a path. */
export const origins: Kind<readonly string[]> = {
  name: "names",
  check(value) {
    const list: unknown[] = Array.isArray(value) ? value : [value];
    for (const each of list) {
      if (each === "null") {
        return '"null" is the origin of every sandboxed page, whose author is unknown; leave it out';
      }
      const origin = typeof each === "string" ? readOrigin(each) : undefined;
      if (origin === undefined) {
        return `${quoteInput(each)} is not an origin: use one such as "http://localhost:5173"`;
      }
      if (origin !== each) return `${quoteInput(each)} is not an origin: use "${origin}"`;
    }
    return list.length > 0 ? undefined : 'use origins such as "http://localhost:5173"';
  },
};

function readOrigin(text: string): string | undefined {
  const { protocol, origin } = URL.canParse(text) ? new URL(text) : { protocol: "", origin: "" };
  return protocol === "http:" || protocol === "https:" ? origin : undefined;
}

/** Seconds for which a browser keeps the answer to a preflight. It is short, because options change in development. */
const MAX_AGE = "60";

/** The options that decide which pages may read responses. */
export interface CorsOptions {
  readonly cors: boolean;
  /** The origins whose pages may read responses, with credentials; undefined for all origins, without credentials. */
  readonly corsOrigin?: readonly string[] | undefined;
}

type Answer<RequestType> = (request: RequestType) => Response | Promise<Response>;

/**
 * Answers preflights of allowed origins, and adds the CORS fields to other responses. If the upstream itself sends
 * `Access-Control-Allow-Origin`, its CORS fields and `Vary` stay as they are, because it knows its responses better.
 *
 * Without a list of origins, all are allowed, but without credentials: with credentials, each page that the user visits could
 * act for the user. A preflight of an origin that is not allowed goes to the upstream, which may allow it.
 * @returns `answer` itself if CORS is off
 */
export function addCors<RequestType extends Request>(
  answer: Answer<RequestType>,
  { cors, corsOrigin }: CorsOptions,
): Answer<RequestType> {
  if (!cors && corsOrigin === undefined) return answer;
  const allowed = corsOrigin && new Set(corsOrigin);

  /** Returns the value of `Access-Control-Allow-Origin`; undefined for an origin that is not allowed. */
  function allow(request: Request): string | undefined {
    if (allowed === undefined) return "*";
    const origin = request.headers.get("origin");
    return origin !== null && allowed.has(origin) ? origin : undefined;
  }

  return async (request) => {
    const origin = allow(request);
    if (origin !== undefined && isPreflight(request)) {
      return new Response(null, { status: 204, headers: preflightFields(request, origin) });
    }
    const answered = await answer(request);
    // No page can read the response to a WebSocket handshake, and the runtime needs its own response object back.
    if (answered.status === 101) return answered;
    if (answered.headers.has("access-control-allow-origin")) return answered;
    const response = toMutable(answered);
    const { headers } = response;
    // The response varies by `Origin` even if the origin is not allowed: a cache must not reuse that response for an allowed
    // origin.
    if (allowed !== undefined) headers.append("vary", "Origin");
    if (origin === undefined) return response;
    headers.set("access-control-allow-origin", origin);
    if (!headers.has("access-control-expose-headers")) {
      // A browser takes "*" literally in a response to a request with credentials, so the fields are named.
      const names = allowed === undefined ? "*" : exposedNames(headers);
      if (names !== "") headers.set("access-control-expose-headers", names);
    }
    if (allowed !== undefined) headers.set("access-control-allow-credentials", "true");
    return response;
  };
}

function isPreflight({ method, headers }: Request): boolean {
  return (
    method === "OPTIONS" && headers.has("origin") && headers.has("access-control-request-method")
  );
}

/**
 * Returns the fields that allow the request which the preflight announces. Access to private networks
 * (`Access-Control-Allow-Private-Network`) is not allowed, because every page on the internet would have it.
 */
function preflightFields({ headers }: Request, origin: string): Headers {
  const fields = new Headers({
    "access-control-allow-origin": origin,
    "access-control-max-age": MAX_AGE,
    vary: "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
  });
  const method = headers.get("access-control-request-method") ?? "";
  if (TOKEN.test(method)) fields.set("access-control-allow-methods", method);
  const names = (headers.get("access-control-request-headers") ?? "").split(",");
  const tokens = names.map((name) => name.trim()).filter((name) => TOKEN.test(name));
  if (tokens.length > 0) fields.set("access-control-allow-headers", tokens.join(", "));
  if (origin !== "*") fields.set("access-control-allow-credentials", "true");
  return fields;
}

/** The names that a page may read. `Set-Cookie` is left out: no browser shows it to a page. */
function exposedNames(headers: Headers): string {
  const names = [...headers.keys()].filter(
    (name) => name !== "set-cookie" && !name.startsWith("access-control-"),
  );
  return [...new Set(names)].join(", ");
}
