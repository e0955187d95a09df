import { cleanRequest, NameSet, REQUEST_DROPPED, toHeaderList, toHeaders } from "./headers.ts";
import type { RequestDraft } from "./hooks.ts";
import { assertSendable } from "./target.ts";
import type { Body, Hop } from "./transport.ts";
import { UnframedBody } from "./unframed.ts";

const encoder = new TextEncoder();
const derived = new NameSet(REQUEST_DROPPED.filter((name) => name !== "proxy-authorization"));

/** A hop as `onRequest` sees it. */
export function toDraft(hop: Hop): RequestDraft {
  return { method: hop.method, path: hop.path, headers: toHeaders(hop.headers), body: undefined };
}

/** The hop that `onRequest` made of its draft. Framing is derived from the body, whatever the hook set. */
export function fromDraft(hop: Hop, draft: RequestDraft): Hop {
  assertSendable(draft.path);
  const { headers, host } = cleanRequest(toHeaderList(draft.headers), derived);
  const next: Hop = {
    ...hop,
    method: draft.method,
    path: draft.path,
    headers,
    host: host ?? hop.host,
  };
  if (draft.body === undefined) return next;
  return { ...next, body: toBody(draft.body), contentLength: undefined };
}

function toBody(body: NonNullable<RequestDraft["body"]> | null): Body | null {
  if (typeof body === "string") return encoder.encode(body);
  return body instanceof ReadableStream ? new UnframedBody(body) : body;
}

/** Names of the fields that a hook set or changed. */
export function fieldsOf(before: Hop, after: Hop): string[] {
  const known = toHeaders(before.headers);
  return [...toHeaders(after.headers)]
    .filter(([name, value]) => known.get(name) !== value)
    .map(([name]) => name);
}
