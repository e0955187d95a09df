import { ProxyError } from "../error.ts";
import { cleanResponse, NameSet, withoutNames } from "../fields/headers.ts";
import { MisuseError } from "../options/misuse.ts";
import type { BodySource } from "../body/source.ts";
import type { HeaderList, UpstreamResponse } from "../transport.ts";

const CONTENT_LENGTH = new NameSet(["content-length"]);

/**
 * The upstream's response as it may go to the client.
 *
 * A hook may have sent another method than the client's. The body of a GET is let go of where the client sent
 * HEAD: a server need not take it, and its connection would stay in use. The length that HEAD was answered with is
 * left out where the client did not send HEAD: it would wait for a body of that length (RFC 9110 §8.6).
 *
 * @param asked the client's method
 * @param sent the method that the upstream was sent
 * @throws ProxyError 502 for what no client could be sent
 */
export function cleanReply(reply: UpstreamResponse, asked: string, sent: string): UpstreamResponse {
  if (reply === undefined || reply === null) {
    throw new MisuseError("fetchway: a transport's `send` must resolve to a response");
  }
  const { status } = reply;
  const bodyless = status === 204 || status === 205 || status === 304 || asked === "HEAD";
  if (reply.body !== null && typeof reply.body?.whole !== "function") {
    throw new MisuseError(
      "fetchway: the body of a response must be null or a body of fetchway/transport: " +
        "new BytesBody(bytes), new StreamBody(stream), or a ResponseBody",
    );
  }
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
  else if (sent === "HEAD") headers = withoutNames(headers, CONTENT_LENGTH);
  return {
    status,
    statusText: cleanReason(reply.statusText),
    headers,
    original: reply.original,
    body: bodyless ? null : reply.body,
    isEncoded: reply.isEncoded ?? false,
  };
}

/** A reason phrase that any server can send: `new Response` and node:http throw for others (RFC 9112 §4). */
function cleanReason(statusText: string): string {
  return /^[\t\u0020-\u007e\u0080-\u00ff]*$/.test(statusText) ? statusText : "";
}

/** Lets go of the body of a request or a response, unread. */
export function discardBody({ body }: { readonly body: BodySource | null }): void {
  body?.cancel();
}

/** Lets go of a response that will not be sent, unless the one that will is made from its body. */
export function discard(response: Response, answer?: Response): void {
  const { body } = response;
  if (body !== null && !body.locked && body !== answer?.body) void body.cancel().catch(() => {});
}
