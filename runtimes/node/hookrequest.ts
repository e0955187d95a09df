import { showHeaders } from "../../src/fields/headers.ts";
import { isAuthority } from "../../src/request/host.ts";
import type { Incoming } from "../../src/request/incoming.ts";

/** Methods that the Fetch standard forbids in a `Request`. */
const FORBIDDEN = /^(?:CONNECT|TRACE|TRACK)$/i;

/** The parts of a request that are shown to functions of the app. */
type Source = Pick<Incoming, "method" | "path" | "headers">;

/**
 * The web `Request` of a request of `node:http`, without a body. Most functions read only its URL, its method or its header
 * fields, or nothing. A native `Request`, which takes 3 KB of memory, is made only when code reads another member.
 *
 * As with the requests of srvx and h3, `instanceof Request` is true, but the constructor `Request` accepts only its `clone()`
 * as the first argument.
 */
class HookRequest {
  readonly method: string;
  readonly #scheme: string;
  readonly #host: string;
  readonly #source: Source;
  #url: string | undefined;
  #headers: Headers | undefined;
  #native: Request | undefined;

  constructor(scheme: string, host: string, source: Source) {
    this.method = source.method;
    this.#scheme = scheme;
    this.#host = host;
    this.#source = source;
  }

  get url(): string {
    return (this.#url ??= toUrl(this.#scheme, this.#host, this.#source.path));
  }

  get headers(): Headers {
    return (this.#headers ??= showHeaders(this.#source.headers));
  }

  clone(): Request {
    const { url, method, headers } = this;
    if (!FORBIDDEN.test(method)) return new Request(url, { method, headers });
    return Object.defineProperty(new Request(url, { headers }), "method", { value: method });
  }

  /**
   * Makes the class inherit from Node's, and returns it. Called with the first request, because Node loads undici when code
   * reads the global `Request`.
   */
  static inherit(): typeof HookRequest {
    const own = HookRequest.prototype;
    for (const name of Object.getOwnPropertyNames(Request.prototype) as (keyof Request)[]) {
      if (name === "method" || name in own) continue;
      const get = function (this: HookRequest): unknown {
        const native = (this.#native ??= this.clone());
        const member = native[name] as unknown;
        return typeof member === "function" ? (member.bind(native) as unknown) : member;
      };
      Object.defineProperty(own, name, { get, configurable: true });
    }
    Object.setPrototypeOf(own, Request.prototype);
    return HookRequest;
  }
}

let Inheriting: typeof HookRequest | undefined;

/**
 * Returns the URL of a request. If `Host` is not an authority, the URL gets a host name that does not exist: no part of `Host`
 * may be read as the path, and no part of the path as the authority (CVE-2026-33131).
 */
function toUrl(scheme: string, host: string, path: string): string {
  const isHost = isAuthority(host) && URL.canParse(`${scheme}://${host}`);
  return new URL(`${scheme}://${isHost ? host : "_invalid_"}${path.startsWith("/") ? path : "/"}`)
    .href;
}

/**
 * Converts a request of `node:http` to a web `Request` without a body, for functions of the app. It succeeds for every request
 * that Node's server accepts.
 */
export function toHookRequest(scheme: string, host: string, source: Source): Request {
  return new (Inheriting ??= HookRequest.inherit())(scheme, host, source) as unknown as Request;
}
