/** Requests that user code constructs. Programs of every runtime import this file, so it uses only web APIs. */
import type { CreateProxyOptions, Proxy } from "../../src/index.ts";

type Create = (options: CreateProxyOptions) => Proxy;

function makeForm(): FormData {
  const form = new FormData();
  form.append("name", "value");
  return form;
}

/**
 * For each type of body: a function that makes a body, and its length in bytes. The length of a form is undefined, because
 * its boundary differs between runtimes.
 */
export const made: Record<string, [make: () => BodyInit, length: number | undefined]> = {
  string: [() => "né", 3],
  bytes: [() => new Uint8Array(10), 10],
  parameters: [() => new URLSearchParams({ a: "b c" }), 5],
  blob: [() => new Blob(["abc", "def"]), 6],
  form: [makeForm, undefined],
  large: [() => "x".repeat(300_000), 300_000],
  nothing: [() => "", 0],
};

async function ask(proxy: Proxy, path: string, init: object): Promise<void> {
  const response = await proxy.fetch(new Request(`http://proxy.test${path}`, init));
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${path}: ${response.status} ${text}`);
}

/**
 * Sends a request with each body through Fetchway's own client, through the runtime's `fetch`, and with a hook that
 * replaces the body.
 */
export async function sendMade(createProxy: Create, target: string): Promise<void> {
  const proxies = {
    own: createProxy({ target }),
    fetch: createProxy({ target, fetch: (url, init) => fetch(url, init) }),
    hooked: createProxy({ target, onRequest: replaceBody }),
  };
  for (const [name, proxy] of Object.entries(proxies)) {
    for (const [kind, [make]] of Object.entries(made)) {
      await ask(proxy, `/${name}/${kind}`, { method: "POST", body: make() });
    }
    await sendSlowly(proxy, `/${name}`);
    await proxy.close();
  }
}

/** An `onRequest` hook that replaces the body by a new stream with the same content. */
function replaceBody(draft: { path: string; body: unknown }): void {
  const [make] = made[draft.path.split("/")[2] as string] ?? [];
  if (make !== undefined) draft.body = new Response(make()).body;
}

/** Sends a stream that produces its second half when the upstream has received the first. */
async function sendSlowly(proxy: Proxy, path: string): Promise<void> {
  const gate = Promise.withResolvers<void>();
  const halves = ["first ", "second"].map((half) => new TextEncoder().encode(half));
  const body = new ReadableStream({
    async pull(controller) {
      if (halves.length === 1) await gate.promise;
      const half = halves.shift();
      if (half === undefined) controller.close();
      else controller.enqueue(half);
    },
  });
  const answer = ask(proxy, `${path}/slow`, { method: "POST", body, duplex: "half" });
  // The upstream answers `/seen` when it has received the first half of the body.
  await ask(proxy, `${path}/seen`, {});
  gate.resolve();
  await answer;
}
