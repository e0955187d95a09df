import {
  cleanRequest,
  NameSet,
  REQUEST_DROPPED,
  toHeaderList,
  toHeaders,
} from "../fields/headers.ts";
import type { RequestDraft } from "../exchange/hooks.ts";
import { assertSendable } from "./target.ts";
import { BytesBody } from "../body/bytes.ts";
import type { BodySource } from "../body/source.ts";
import { UnframedBody } from "../body/unframed.ts";
import type { HeaderList, UpstreamRequest } from "../transport.ts";

const encoder = new TextEncoder();
const derived = new NameSet(REQUEST_DROPPED.filter((name) => name !== "proxy-authorization"));

/** A request as `onRequest` sees it. */
export function toDraft(request: UpstreamRequest): RequestDraft {
  return {
    method: request.method,
    path: request.path,
    headers: toHeaders(request.headers),
    body: undefined,
  };
}

/** The request that `onRequest` made of its draft. Framing is derived from the body, whatever the hook set. */
export function fromDraft(request: UpstreamRequest, draft: RequestDraft): UpstreamRequest {
  assertSendable(draft.path);
  const { headers, host } = cleanRequest(toHeaderList(draft.headers), derived);
  const next: UpstreamRequest = {
    ...request,
    method: draft.method,
    path: draft.path,
    headers,
    host: host ?? request.host,
  };
  if (draft.body === undefined) return next;
  return { ...next, body: toBody(draft.body), contentLength: undefined };
}

function toBody(body: NonNullable<RequestDraft["body"]> | null): BodySource | null {
  if (body === null) return null;
  if (body instanceof ReadableStream) return new UnframedBody(body);
  return new BytesBody(typeof body === "string" ? encoder.encode(body) : body);
}

/** Names of the fields that were set or changed between two lists. */
export function changedFields(before: HeaderList, after: HeaderList): string[] {
  const known = toHeaders(before);
  return [...toHeaders(after)]
    .filter(([name, value]) => known.get(name) !== value)
    .map(([name]) => name);
}
