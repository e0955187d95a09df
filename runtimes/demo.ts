/** A small upstream to try a proxy on: what `fetchway --demo` forwards to. */

const EVENTS = 5;
const EVENT_INTERVAL = 1000;
const SLOW_LIMIT = 30_000;

type Handler = (request: Request, url: URL) => Response | Promise<Response>;

/** A path, what there is to see behind it, how curl asks for it, and what answers. */
interface Page {
  readonly about: string;
  /** What goes between `curl` and the URL. */
  readonly curl?: string;
  /** What follows the path in the URL that is shown. */
  readonly tail?: string;
  readonly answer: Handler;
}

const pages: Readonly<Record<string, Page>> = {
  "/": { about: "this page", answer: index },
  "/headers": { about: "the request as it reaches the upstream", answer: headers },
  "/echo": {
    about: "your body comes back while you are still sending it",
    curl: '-d "hello"',
    answer: echo,
  },
  "/events": {
    about: `${EVENTS} server-sent events, one a second, none held back`,
    curl: "-N",
    answer: events,
  },
  "/gzip": {
    about: "compressed bytes, which pass as they are",
    curl: "-i --compressed",
    answer: gzip,
  },
  "/redirect": { about: "a redirect, which is yours to follow", curl: "-i", answer: redirect },
  "/cookies": { about: "several Set-Cookie, each still its own", curl: "-i", answer: cookies },
  "/slow": { about: "an answer that takes its time", tail: "?ms=2000", answer: slow },
  "/status/": { about: "any status from 200 to 599", curl: "-i", tail: "418", answer: status },
};

/** The curl commands to begin with. */
export function renderFirstSteps(origin: string): string[] {
  return ["/", "/headers", "/echo", "/events", "/gzip"].map((path) => renderCurl(origin, path));
}

function renderCurl(origin: string, path: string): string {
  const { curl, tail = "" } = pages[path] as Page;
  // A shell would take `?` for a pattern.
  const url = tail.includes("?") ? `"${origin}${path}${tail}"` : `${origin}${path}${tail}`;
  return ["curl", ...(curl === undefined ? [] : [curl]), url].join(" ");
}

/** Answers as the demo upstream. */
export function answerDemo(request: Request): Response | Promise<Response> {
  const url = new URL(request.url);
  const page = pages[url.pathname.startsWith("/status/") ? "/status/" : url.pathname];
  return page?.answer(request, url) ?? text(`nothing here: see what there is at /\n`, 404);
}

function text(body: string, code = 200): Response {
  return new Response(body, {
    status: code,
    headers: { "content-type": "text/plain; charset=utf-8" },
  });
}

function index(request: Request, url: URL): Response {
  // The proxy tells where the client asked: the upstream's own address would lead around the proxy.
  const proto = request.headers.get("x-forwarded-proto") ?? "http";
  const origin = `${proto}://${request.headers.get("x-forwarded-host") ?? url.host}`;
  const lines = Object.entries(pages).map(
    ([path, { about }]) => `${about}\n  ${renderCurl(origin, path)}\n`,
  );
  return text(`This page came through fetchway. There is also:\n\n${lines.slice(1).join("\n")}`);
}

function headers(request: Request, url: URL): Response {
  const received = {
    method: request.method,
    url: url.pathname + url.search,
    headers: Object.fromEntries(request.headers),
  };
  return new Response(`${JSON.stringify(received, null, 2)}\n`, {
    headers: { "content-type": "application/json" },
  });
}

function echo(request: Request): Response {
  if (request.body === null) return text('send a body: curl -d "hello"\n', 400);
  return new Response(request.body, {
    headers: {
      "content-type": request.headers.get("content-type") ?? "application/octet-stream",
      "x-content-type-options": "nosniff",
    },
  });
}

function events(): Response {
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

function gzip(): Response {
  const plain = "Compressed by the upstream, and not touched on the way.\n".repeat(4);
  const body = new Blob([plain]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Response(body, {
    headers: { "content-type": "text/plain; charset=utf-8", "content-encoding": "gzip" },
  });
}

function redirect(): Response {
  return new Response(null, { status: 302, headers: { location: "/headers" } });
}

function cookies(): Response {
  const response = text("two cookies and a deleted one\n");
  response.headers.append("set-cookie", "taste=sweet; Path=/; HttpOnly");
  response.headers.append(
    "set-cookie",
    "size=large; Path=/; Expires=Fri, 31 Dec 2100 23:59:59 GMT",
  );
  response.headers.append("set-cookie", "stale=; Path=/; Max-Age=0");
  return response;
}

async function slow(_request: Request, url: URL): Promise<Response> {
  const asked = url.searchParams.get("ms") ?? "1000";
  const delay = /^\d+$/.test(asked) ? Math.min(Number(asked), SLOW_LIMIT) : 1000;
  await new Promise((resolve) => setTimeout(resolve, delay));
  return text(`waited ${delay} ms\n`);
}

function status(_request: Request, url: URL): Response {
  const code = Number(/^\/status\/([2-5]\d\d)$/.exec(url.pathname)?.[1]);
  if (Number.isNaN(code))
    return text("ask for a status from 200 to 599, such as /status/418\n", 400);
  if (code === 204 || code === 205 || code === 304) return new Response(null, { status: code });
  return text(code === 418 ? "I'm a teapot\n" : `${code}\n`, code);
}
