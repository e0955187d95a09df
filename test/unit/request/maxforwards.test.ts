import { describe, expect, test, vi } from "vitest";
import type { Incoming } from "../../../src/request/incoming.ts";
import { countForwards } from "../../../src/request/maxforwards.ts";
import {
  answering,
  errorOf,
  fakeIncoming,
  FakeTransport,
  proxyError,
  run,
  to,
} from "../../helpers/fakes.ts";

interface Sent {
  /** The values of Max-Forwards that the last upstream received; empty if the request was not forwarded. */
  forwarded: string[];
  calls: number;
  response: Response;
}

async function send(
  method: string,
  headers: string[],
  options: Parameters<typeof run>[1] = {},
  incoming: Partial<Incoming> = {},
  transport = new FakeTransport(),
): Promise<Sent> {
  // The Fetch standard does not allow a Request with TRACE, so the method is only in the incoming request.
  const request = (): Request => new Request("http://proxy.test/");
  const setup = { transport, ...options, options: { trace: true, ...options.options } };
  const response = await run({ method, headers, request, ...incoming }, setup);
  const sent = transport.hops.at(-1)?.headers ?? [];
  const forwarded = sent.filter((_, i) => /^max-forwards$/i.test(sent[i - 1] ?? ""));
  return { forwarded, calls: transport.hops.length, response };
}

const counted = ["OPTIONS", "TRACE"];

describe.each(counted)("Max-Forwards of %s", (method) => {
  test.each([
    [[], []],
    [["Max-Forwards", "1"], ["0"]],
    [["max-forwards", "10"], ["9"]],
    [["MAX-FORWARDS", "007"], ["6"]],
    [["Max-Forwards", "9".repeat(400)], [String(2 ** 53)]],
  ])("in the fields %j is forwarded with the values %j", async (headers, forwarded) => {
    expect(await send(method, headers)).toMatchObject({ forwarded, calls: 1 });
  });

  test.each(["0", "00", "000"])(
    "with the value %j makes the proxy answer the request itself",
    async (value) => {
      const sent = await send(method, ["Max-Forwards", value]);
      expect(sent).toMatchObject({ calls: 0, response: { status: 200 } });
    },
  );

  test.each([
    [["Max-Forwards", ""]],
    [["Max-Forwards", "-1"]],
    [["Max-Forwards", "1.5"]],
    [["Max-Forwards", "1e1"]],
    [["Max-Forwards", "0x1"]],
    [["Max-Forwards", "0, 5"]],
    [["Max-Forwards", "five"]],
    [["Max-Forwards", "\u0661"]],
    [["Max-Forwards", "0", "max-forwards", "5"]],
    [["Max-Forwards", "5", "max-forwards", "0"]],
    [["Max-Forwards", "5", "Max-Forwards", "5"]],
  ])("in the fields %j gets 400, because it cannot be decremented", async (headers) => {
    const sent = await send(method, headers);
    expect(sent).toMatchObject({ calls: 0, response: { status: 400 } });
    const error = await errorOf(() => countForwards([...headers]));
    expect(error).toEqual(proxyError("http_request_error", 400));
  });

  test("is also forwarded to another origin to which a redirect leads", async () => {
    const options = { followRedirects: true, redirectTargets: "any" } as const;
    const transport = answering(to("http://b.test/"));
    const sent = await send(method, ["Max-Forwards", "5"], { options }, {}, transport);
    expect(sent).toMatchObject({ forwarded: ["4"], calls: 2 });
  });

  test("onRequest is called for a request that ends at the proxy, and its response is used", async () => {
    const seen: (string | null)[] = [];
    const onRequest = ({ headers }: { headers: Headers }): Response => {
      seen.push(headers.get("max-forwards"));
      return new Response(null, { status: 405 });
    };
    for (const value of ["0", "5"]) {
      const sent = await send(method, ["Max-Forwards", value], { options: { onRequest } });
      expect(sent).toMatchObject({ calls: 0, response: { status: 405 } });
    }
    expect(seen).toEqual(["0", "4"]);
  });

  test("onRequest cannot forward a request that ends at the proxy", async () => {
    const onRequest = (draft: { method: string; headers: Headers }): void => {
      draft.method = "GET";
      draft.headers.delete("max-forwards");
    };
    const sent = await send(method, ["Max-Forwards", "0"], { options: { onRequest } });
    expect(sent).toMatchObject({ calls: 0, response: { status: 200 } });
  });
});

test.each(["GET", "HEAD", "POST", "PUT", "PROPFIND", "options", "trace"])(
  "%s ignores any value of Max-Forwards",
  async (method) => {
    for (const value of ["0", "5", "x"]) {
      const sent = await send(method, ["Max-Forwards", value]);
      expect(sent).toMatchObject({ forwarded: [value], calls: 1 });
    }
  },
);

test("Max-Forwards of the option `headers` is forwarded unchanged, in place of the client's", async () => {
  const options = { headers: { "max-forwards": "any" } };
  const sent = await send("OPTIONS", ["Max-Forwards", "5"], { options });
  expect(sent).toMatchObject({ forwarded: ["any"], calls: 1 });
});

test("the proxy answers OPTIONS at Max-Forwards 0 without content", async () => {
  const { response } = await send("OPTIONS", ["Max-Forwards", "0"]);
  expect(response.headers.get("content-length")).toBe("0");
  expect(await response.text()).toBe("");
});

test("the proxy answers TRACE at Max-Forwards 0 with the request, without its credentials and addresses", async () => {
  const kept = ["Host", "proxy.test", "max-forwards", "0", "X-A", "caf\u00e9", "x-a", "2"];
  const left = [
    ["Cookie", "a=b"],
    ["authorization", "Basic x"],
    ["Proxy-Authorization", "Basic x"],
    ["X-Api-Key", "x"],
    ["X_Auth_Request", "x"],
    ["X-Amz-Security-Token", "x"],
    ["X-Forwarded-For", "10.0.0.1"],
    ["X_Forwarded_Host", "inner"],
    ["X-Real-IP", "10.0.0.1"],
    ["Forwarded", "for=10.0.0.1"],
  ].flat();
  const incoming = { path: "/a%2F?b", version: () => "1.0" };
  const { response } = await send("TRACE", [...kept, ...left], {}, incoming);
  expect(response.headers.get("content-type")).toBe("message/http");
  const shown = Buffer.from(await response.arrayBuffer());
  expect(response.headers.get("content-length")).toBe(String(shown.byteLength));
  expect(shown.toString("latin1")).toBe(
    "TRACE /a%2F?b HTTP/1.0\r\nHost: proxy.test\r\nmax-forwards: 0\r\nX-A: caf\u00e9\r\nx-a: 2\r\n\r\n",
  );
});

test("a request that the proxy answers at Max-Forwards 0 leaves no timer and no listener", async () => {
  const client = fakeIncoming({ method: "OPTIONS", headers: ["Max-Forwards", "0"] });
  vi.useFakeTimers();
  try {
    const sent = await send("OPTIONS", [], { options: { timeout: 10 } }, client);
    expect(sent).toMatchObject({ calls: 0, response: { status: 200 } });
    expect([vi.getTimerCount(), client.listeners.size]).toEqual([0, 0]);
  } finally {
    vi.useRealTimers();
  }
});
