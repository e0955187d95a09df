/**
 * Makes only the calls of the runtime that no proxy with Fetchway's rules can avoid. It reads the header fields of the request
 * and of the response, adds the forwarding fields, starts a timer that can abort the request, and creates a response whose
 * fields could be changed.
 * @param clientAddress the address of the client
 */
export async function forwardByHand(
  request: Request,
  target: string,
  clientAddress: string,
): Promise<Response> {
  const { pathname, search, host, port } = new URL(request.url);
  countFields(request.headers);
  const headers = new Headers(request.headers);
  headers.delete("host");
  headers.append("X-Forwarded-For", clientAddress);
  headers.append("X-Forwarded-Proto", "http");
  headers.append("X-Forwarded-Host", host);
  headers.append("X-Forwarded-Port", port);
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), 30_000);
  const { method, body } = request;
  const { signal } = controller;
  const url = target + pathname + search;
  const received = await fetch(url, { method, headers, body, redirect: "manual", signal });
  clearTimeout(timer);
  countFields(received.headers);
  const { status, statusText } = received;
  return new Response(received.body, { status, statusText, headers: received.headers });
}

/** Reads all fields, as each proxy must do to find the fields that it drops. */
function countFields(headers: Headers): number {
  let count = 0;
  for (const [name, value] of headers) if (name.length + value.length > 0) count += 1;
  return count;
}
