import { toStream } from "./body.ts";
import { ProxyError } from "./error.ts";
import { cleanResponse } from "./headers.ts";
import type { Body, HeaderList, Reply } from "./transport.ts";

/**
 * The upstream's answer as it may go to the client.
 * @throws ProxyError 502 for what no client could be sent
 */
export function cleanReply(reply: Reply): Reply {
  const { status } = reply;
  const bodyless = status === 204 || status === 205 || status === 304;
  let headers: HeaderList;
  try {
    if (status < 200 || status > 599) {
      throw new ProxyError("http_protocol_error", {
        message: `the upstream's status was ${status}`,
      });
    }
    headers = cleanResponse(status, reply.headers);
  } catch (error) {
    discardBody(reply);
    throw error;
  }
  if (bodyless) discardBody(reply);
  return {
    status,
    statusText: cleanReason(reply.statusText),
    headers,
    original: reply.original,
    body: bodyless ? null : reply.body,
  };
}

/** A reason phrase that any server can send: `new Response` and node:http throw for others (RFC 9112 §4). */
function cleanReason(statusText: string): string {
  return /^[\t\u0020-\u007e\u0080-\u00ff]*$/.test(statusText) ? statusText : "";
}

/** Lets go of the body of a request or a response, unread. */
export function discardBody({ body }: { readonly body: Body | null }): void {
  if (body === null || body instanceof Uint8Array) return;
  void toStream(body)
    .cancel()
    .catch(() => {});
}

/** Lets go of a response that will not be sent, unless the one that will is made from its body. */
export function discard(response: Response, answer?: Response): void {
  const { body } = response;
  if (body !== null && !body.locked && body !== answer?.body) void body.cancel().catch(() => {});
}
