/** Which forwarding fields of which peers are trusted, as seen in the request that reaches the upstream. */
import { describe, expect, test, vi } from "vitest";
import type { Incoming } from "../../../src/request/incoming.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { FakeTransport, run } from "../../helpers/fakes.ts";

async function fieldsOf(
  incoming: Partial<Incoming>,
  options: ProxyOptions,
): Promise<Record<string, string>> {
  const transport = new FakeTransport();
  expect((await run(incoming, { options, transport })).status).toBe(200);
  const list = transport.hops[0]?.headers ?? [];
  const fields: Record<string, string> = {};
  for (let i = 0; i < list.length; i += 2) fields[list[i] as string] = list[i + 1] as string;
  return fields;
}

const chain = ["X-Forwarded-For", "6.6.6.6, 203.0.113.7, 10.0.0.2", "X-Forwarded-Proto", "https"];
const trustProxy = ["10.0.0.0/8"];

test("addresses to the left of the client's are removed from a trusted chain, and the peer is appended", async () => {
  const fields = await fieldsOf({ headers: chain, address: "10.0.0.3" }, { trustProxy });
  expect(fields["X-Forwarded-For"]).toBe("203.0.113.7, 10.0.0.2, 10.0.0.3");
  expect(fields).toMatchObject({ "X-Forwarded-Proto": "https", "X-Forwarded-Port": "443" });
});

describe("a peer of unknown address", () => {
  const unknown = { headers: chain, address: undefined };

  test.each([[trustProxy], [["0.0.0.0/0", "::/0"]], [(): boolean => true]])(
    "is not trusted if trustProxy is %j",
    async (trust) => {
      const fields = await fieldsOf(unknown, { trustProxy: trust });
      expect(fields).not.toHaveProperty("X-Forwarded-For");
      expect(fields["X-Forwarded-Proto"]).toBe("http");
    },
  );

  test("is trusted if trustProxy is true", async () => {
    const fields = await fieldsOf(unknown, { trustProxy: true });
    expect(fields["X-Forwarded-For"]).toBe("6.6.6.6, 203.0.113.7, 10.0.0.2");
    expect(fields["X-Forwarded-Proto"]).toBe("https");
  });

  test("has the address that clientAddress returns", async () => {
    const believed = await fieldsOf(unknown, { trustProxy, clientAddress: () => "10.0.0.3" });
    expect(believed["X-Forwarded-For"]).toBe("203.0.113.7, 10.0.0.2, 10.0.0.3");
    for (const said of ["203.0.113.9", "10.0.0.3, 10.0.0.4", undefined]) {
      const fields = await fieldsOf(unknown, { trustProxy, clientAddress: () => said });
      expect(fields["X-Forwarded-For"]).toBe(said?.includes(",") ? undefined : said);
      expect(fields["X-Forwarded-Proto"]).toBe("http");
    }
  });
});

test("with xfwd: false, addresses to the left of the client's are removed from a trusted chain, and none is added", async () => {
  const headers = [...chain, "Forwarded", "for=6.6.6.6, for=203.0.113.7", "X_Forwarded_For", "1"];
  const options = { trustProxy, xfwd: false };
  expect(await fieldsOf({ headers, address: "10.0.0.3" }, options)).toEqual({
    "X-Forwarded-For": "203.0.113.7, 10.0.0.2",
    "X-Forwarded-Proto": "https",
    Forwarded: "for=203.0.113.7",
  });
});

test("forwardHeaders forwards a trusted Forwarded, without the elements to the left of the client's", async () => {
  const headers = ["Forwarded", "for=6.6.6.6, for=203.0.113.7"];
  const options = { trustProxy, forwardHeaders: ["forwarded"] };
  const fields = await fieldsOf({ headers, address: "10.0.0.3" }, options);
  expect(fields["Forwarded"]).toBe("for=203.0.113.7");
});

test("`headers` and `filterHeaders` take precedence over the fields of a trusted peer", async () => {
  const options = {
    trustProxy,
    headers: { "x-forwarded-proto": "ours" },
    filterHeaders: ["x-forwarded-host", "x-real-ip"],
  };
  const headers = [...chain, "X-Forwarded-Host", "evil", "X-Real-IP", "6.6.6.6"];
  expect(await fieldsOf({ headers, address: "10.0.0.3" }, options)).toEqual({
    "X-Forwarded-For": "203.0.113.7, 10.0.0.2, 10.0.0.3",
    "X-Forwarded-Port": "80",
    "x-forwarded-proto": "ours",
  });
});

test("a request whose Via names this proxy gets 502 and is not sent, and onError is called", async () => {
  const transport = new FakeTransport();
  const onError = vi.fn();
  const headers = ["Via", "1.1 a, 1.1 edge"];
  const response = await run({ headers }, { options: { via: "edge", onError }, transport });
  expect(response.status).toBe(502);
  expect(await response.text()).toBe("Bad Gateway: proxy_loop_detected\n");
  expect(response.headers.get("proxy-status")).toBe("edge; error=proxy_loop_detected");
  expect(onError).toHaveBeenCalledOnce();
  expect(transport.hops).toEqual([]);
  expect((await run({ headers }, { transport })).status).toBe(200);
});

test("the option `via` adds Via with the received HTTP version, and names this proxy in Forwarded", async () => {
  const options: ProxyOptions = { via: "edge", xfwd: "forwarded" };
  expect(await fieldsOf({ version: () => "2.0" }, options)).toEqual({
    Forwarded: "for=192.0.2.7;by=_edge;host=proxy.test;proto=http",
    Via: "2.0 edge",
  });
});
