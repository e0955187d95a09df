import { BytesBody } from "../body/bytes.ts";
import { encodeText } from "../body/memory.ts";
import type { BodySource } from "../body/source.ts";
import { UnframedBody } from "../body/unframed.ts";
import { type HeaderList, showHeaders, takeHeaders, toHeaders } from "../fields/headers.ts";
import { REQUEST_DERIVED } from "../fields/hopbyhop.ts";
import { badOption } from "../misuse.ts";
import type { RequestDraft } from "../options/hookoptions.ts";
import type { ProxyOptions } from "../options/proxyoptions.ts";
import type { Incoming } from "../request/incoming.ts";
import { cleanRequestHeaders } from "../request/outgoing.ts";
import { suggest } from "../schema/nearest.ts";
import { assertSendable, isAsterisk, withSlash } from "../target/target.ts";
import type { UpstreamRequest } from "../transport/message.ts";
import type { Client } from "../transport/scope.ts";

/**
 * Returns the response that a hook has returned, or undefined if it has returned nothing.
 * @param hook the name of the hook, for the message
 * @throws MisuseError for any other value: an arrow function may return a value by mistake
 */
export function readHookResponse(returned: unknown, hook: string): Response | undefined {
  if (!returned) return undefined;
  // Do not check the class, because some servers have their own `Response` class.
  if (typeof returned === "object" && "status" in returned && "headers" in returned) {
    return returned as Response;
  }
  throw badOption(
    hook,
    `it returned a value of type ${typeof returned}; return a Response, or nothing`,
  );
}

/**
 * Makes sure that `onResponse` has not read the response body, which belongs to the client. `body.locked` is not
 * checked, because reading `body` would create a web stream for each response, and a hook that locks the body also reads it.
 * @throws MisuseError if the hook has read the body
 */
export function assertUnread(isUsed: boolean): undefined {
  if (!isUsed) return undefined;
  throw badOption(
    "onResponse",
    "it has read the body; read response.clone(), or return a new Response (docs/bodies.md)",
  );
}

/** Returns a receiver of interim responses. It passes each one to the hook `onInformational`, and then to the client. */
export function observeInterim(
  incoming: Incoming,
  hook: NonNullable<ProxyOptions["onInformational"]>,
): Pick<Client, "inform"> {
  // Async, so that it rejects instead of throwing: if it threw, no code would handle a rejection of the hook's promise.
  const inform = async (status: number, headers: HeaderList): Promise<unknown> =>
    incoming.inform?.(status, headers);
  return {
    inform(status, headers) {
      const observed = hook(status, toHeaders(headers), incoming.request());
      return Promise.all([observed, inform(status, headers)]);
    },
  };
}

const MEMBERS: readonly string[] = [
  "method",
  "path",
  "headers",
  "body",
] satisfies (keyof RequestDraft)[];

/**
 * Refuses a draft on which a hook has set an unknown member, because that member would have no effect.
 * @throws MisuseError that names the member
 */
function assertMembers(draft: RequestDraft): void {
  // Unlike `Object.keys`, this loop allocates nothing.
  for (const name in draft) {
    if (MEMBERS.includes(name) || !Object.hasOwn(draft, name)) continue;
    throw badOption("onRequest", `a draft has no \`${name}\`; ${suggest(name, MEMBERS)}`);
  }
}

/** Makes the draft of a request, which `onRequest` may change. */
export function toDraft({ method, path, headers }: UpstreamRequest): RequestDraft {
  // The members are plain properties: accessors for `headers` would cost about as much memory as the `Headers`.
  return { method, path, headers: showHeaders(headers), body: undefined };
}

/**
 * Returns a request with the changes that the hook has made in its draft. Framing fields are dropped: the message framing is
 * always derived from the body.
 */
export function takeDraft(request: UpstreamRequest, draft: RequestDraft): UpstreamRequest {
  assertMembers(draft);
  const { method, body } = draft;
  let { path } = draft;
  if (!isAsterisk(path, method)) assertSendable((path = withSlash(path)));
  if (request.upgrade !== undefined && (method !== request.method || body)) {
    throw badOption("onRequest", "leave the method and the body of an upgrade as they are");
  }
  const changed = { ...request, ...readHeaders(request, draft.headers), method, path };
  if (body === undefined) return changed;
  const source = toBodySource(body);
  return { ...changed, body: source, contentLength: undefined, trailer: undefined };
}

function readHeaders(
  request: UpstreamRequest,
  given: Headers,
): Pick<UpstreamRequest, "headers" | "host"> {
  const list = takeHeaders(given);
  if (list === request.headers) return request;
  const { headers, host } = cleanRequestHeaders(list, REQUEST_DERIVED);
  return { headers, host: host ?? request.host };
}

function toBodySource(body: NonNullable<RequestDraft["body"]> | null): BodySource | null {
  if (body === null) return null;
  if (body instanceof ReadableStream) return new UnframedBody(body);
  return new BytesBody(typeof body === "string" ? encodeText(body) : body);
}
