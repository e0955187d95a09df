/**
 * The floor on workerd: only the runtime's own calls that a proxy with these rules cannot avoid. Both
 * lists of header fields are read, the forwarding fields are added, a timer can abort the request, and the response is the
 * proxy's own, so that its fields can be changed.
 */
const worker: { fetch(request: Request, env: { TARGET: string }): Promise<Response> } = {
  async fetch(request, env) {
    const { pathname, search, host, port } = new URL(request.url);
    countFields(request.headers);
    const { cf } = request as { cf?: { clientIp?: string } };
    const headers = new Headers(request.headers);
    headers.delete("host");
    headers.append("X-Forwarded-For", cf?.clientIp?.replace(/:\d+$/, "") ?? "");
    headers.append("X-Forwarded-Proto", "http");
    headers.append("X-Forwarded-Host", host);
    headers.append("X-Forwarded-Port", port);
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), 30_000);
    const { method, body } = request;
    const { signal } = controller;
    const url = env.TARGET + pathname + search;
    const received = await fetch(url, { method, headers, body, redirect: "manual", signal });
    clearTimeout(timer);
    countFields(received.headers);
    const { status, statusText } = received;
    return new Response(received.body, { status, statusText, headers: received.headers });
  },
};

/** Reads all fields, as a proxy must to find those that it drops. */
function countFields(headers: Headers): number {
  let count = 0;
  for (const [name, value] of headers) if (name.length + value.length > 0) count += 1;
  return count;
}

export default worker;
