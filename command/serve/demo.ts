/** A small upstream to try the proxy with: `fetchway --demo` forwards requests to it. */

const EVENTS = 5;
/** Milliseconds between two events. */
const EVENT_INTERVAL = 1000;
/** The maximum number of milliseconds that `/slow` waits. */
const SLOW_LIMIT = 30_000;

type Handler = (request: Request, url: URL) => Response | Promise<Response>;

/** One path of the upstream. */
interface Page {
  /** What the path shows. */
  readonly about: string;
  /** The options of the `curl` command that the page at `/` shows for this path. */
  readonly curl?: string;
  /** The text after the path in this `curl` command, such as a query. */
  readonly tail?: string;
  readonly answer: Handler;
}

const pages: Readonly<Record<string, Page>> = {
  "/": { about: "this page", answer: answerIndex },
  "/headers": { about: "the request as it reaches the upstream", answer: answerHeaders },
  "/echo": {
    about: "your body, sent back while you are still sending it",
    curl: '-d "hello"',
    answer: answerEcho,
  },
  "/events": {
    about: `${EVENTS} server-sent events, one a second, which the proxy does not hold back`,
    curl: "-N",
    answer: answerEvents,
  },
  "/gzip": {
    about: "compressed bytes, which the proxy passes unchanged",
    curl: "-i --compressed",
    answer: answerGzip,
  },
  "/redirect": {
    about: "a redirect, which the proxy does not follow",
    curl: "-i",
    answer: answerRedirect,
  },
  "/cookies": {
    about: "several Set-Cookie fields, which stay apart",
    curl: "-i",
    answer: answerCookies,
  },
  "/slow": { about: "a response that takes its time", tail: "?ms=2000", answer: answerSlow },
  "/status/": {
    about: "any status from 200 to 599",
    curl: "-i",
    tail: "418",
    answer: answerStatus,
  },
};

/** Returns the curl commands that the banner of the command shows. */
export function renderFirstSteps(origin: string): string[] {
  return ["/", "/headers", "/echo", "/events", "/gzip"].map((path) => renderCurl(origin, path));
}

function renderCurl(origin: string, path: string): string {
  const { curl, tail = "" } = pages[path] as Page;
  // Quote a URL with a query, because a shell treats `?` as a pattern.
  const url = tail.includes("?") ? `"${origin}${path}${tail}"` : `${origin}${path}${tail}`;
  return ["curl", ...(curl === undefined ? [] : [curl]), url].join(" ");
}

export function answerDemo(request: Request): Response | Promise<Response> {
  const url = new URL(request.url);
  const page = pages[url.pathname.startsWith("/status/") ? "/status/" : url.pathname];
  return page?.answer(request, url) ?? toTextResponse(`not found: / lists all paths\n`, 404);
}

function toTextResponse(body: string, code = 200): Response {
  return new Response(body, {
    status: code,
    headers: { "content-type": "text/plain; charset=utf-8" },
  });
}

function answerIndex(request: Request, url: URL): Response {
  // Show URLs of the proxy: with URLs of the demo upstream, `curl` would bypass the proxy.
  const proto = request.headers.get("x-forwarded-proto") ?? "http";
  const origin = `${proto}://${request.headers.get("x-forwarded-host") ?? url.host}`;
  const lines = Object.entries(pages).map(
    ([path, { about }]) => `${about}\n  ${renderCurl(origin, path)}\n`,
  );
  return toTextResponse(
    `This page came through fetchway. There is also:\n\n${lines.slice(1).join("\n")}`,
  );
}

function answerHeaders(request: Request, url: URL): Response {
  const received = {
    method: request.method,
    url: url.pathname + url.search,
    headers: Object.fromEntries(request.headers),
  };
  return new Response(`${JSON.stringify(received, null, 2)}\n`, {
    headers: { "content-type": "application/json" },
  });
}

function answerEcho(request: Request): Response {
  if (request.body === null) return toTextResponse('send a body: curl -d "hello"\n', 400);
  return new Response(request.body, {
    headers: {
      "content-type": request.headers.get("content-type") ?? "application/octet-stream",
      "x-content-type-options": "nosniff",
    },
  });
}

function answerEvents(): Response {
  const encoder = new TextEncoder();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      let id = 0;
      const send = (): void => {
        id++;
        controller.enqueue(encoder.encode(`id: ${id}\ndata: ${new Date().toISOString()}\n\n`));
        if (id < EVENTS) timer = setTimeout(send, EVENT_INTERVAL);
        else controller.close();
      };
      send();
    },
    cancel: () => clearTimeout(timer),
  });
  return new Response(body, {
    headers: { "content-type": "text/event-stream", "cache-control": "no-cache" },
  });
}

function answerGzip(): Response {
  const plain = "Compressed by the upstream, and not touched on the way.\n".repeat(4);
  const body = new Blob([plain]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Response(body, {
    headers: { "content-type": "text/plain; charset=utf-8", "content-encoding": "gzip" },
  });
}

function answerRedirect(): Response {
  return new Response(null, { status: 302, headers: { location: "/headers" } });
}

function answerCookies(): Response {
  const response = toTextResponse("two cookies and a deleted one\n");
  response.headers.append("set-cookie", "taste=sweet; Path=/; HttpOnly");
  response.headers.append(
    "set-cookie",
    "size=large; Path=/; Expires=Fri, 31 Dec 2100 23:59:59 GMT",
  );
  response.headers.append("set-cookie", "stale=; Path=/; Max-Age=0");
  return response;
}

async function answerSlow(_request: Request, url: URL): Promise<Response> {
  const requested = url.searchParams.get("ms") ?? "1000";
  const delay = /^\d+$/.test(requested) ? Math.min(Number(requested), SLOW_LIMIT) : 1000;
  await new Promise((resolve) => setTimeout(resolve, delay));
  return toTextResponse(`waited ${delay} ms\n`);
}

function answerStatus(_request: Request, url: URL): Response {
  const code = Number(/^\/status\/([2-5]\d\d)$/.exec(url.pathname)?.[1]);
  if (Number.isNaN(code))
    return toTextResponse("use a status from 200 to 599, such as /status/418\n", 400);
  if (code === 204 || code === 205 || code === 304) return new Response(null, { status: code });
  return toTextResponse(code === 418 ? "I'm a teapot\n" : `${code}\n`, code);
}
