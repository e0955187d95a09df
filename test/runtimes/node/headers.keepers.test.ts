/** Servers that cache values of Node's request: the proxy's reads do not change the cached values. */
import { createServer, type IncomingMessage } from "node:http";
import { describe, expect, test } from "vitest";
import { proxyFetch } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import { type Header, request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

/** Request objects that cache Node's headers, each in another way. */
const keepers: Record<string, (req: IncomingMessage) => { readonly headers: Headers }> = {
  "Headers that are made when first asked for": (req) => {
    let made: Headers | undefined;
    return {
      get headers() {
        return (made ??= new Headers(req.headers as Record<string, string>));
      },
    };
  },
  "a copy that is made at the first get": (req) => {
    let copy: Record<string, unknown> | undefined;
    return fakeHeaders((name) => (copy ??= { ...req.headers })[name]);
  },
  "the object itself from the first get on": (req) => {
    let kept: IncomingMessage["headers"] | undefined;
    return fakeHeaders((name) => (kept ??= req.headers)[name]);
  },
  "each value that was asked for": (req) => {
    const values = new Map<string, unknown>();
    return fakeHeaders((name) => {
      if (!values.has(name)) values.set(name, req.headers[name]);
      return values.get(name);
    });
  },
};

function fakeHeaders(get: (name: string) => unknown): { headers: Headers } {
  const headers = {
    get: (name: string) => (get(name.toLowerCase()) as string | undefined) ?? null,
    // Like a real Headers object, `forEach` passes the same values as `get` returns.
    forEach(each: (value: string, name: string) => void) {
      for (const name of ["x-kept", "x-user", "accept", "host"]) {
        const value = headers.get(name);
        if (value !== null) each(value, name);
      }
    },
  };
  return { headers: headers as unknown as Headers };
}

describe("request objects that cache header values", () => {
  test.each(Object.entries(keepers))(
    "%s: the cached values are the client's after the proxy has read the header fields",
    async (_, keep) => {
      const looks: unknown[] = [];
      const names = ["x-kept", "x-user", "accept", "fetchway-probe"];
      const server = createServer((req, res) => {
        const own = keep(req);
        const each: unknown = {
          get headers() {
            return own.headers;
          },
          url: `http://proxy.test${req.url}`,
          method: "GET",
          clone: () => each,
          runtime: { node: { req, res } },
        };
        const answer = async (): Promise<void> => {
          const response = await proxyFetch(each as Request, upstream.url);
          looks.push(names.map((name) => own.headers.get(name)));
          looks.push(Object.keys(req.headers).toSorted());
          res.end(await response.text());
        };
        void answer();
      });
      const port = await apps.listen(server);
      const fields: Header[] = [
        ["X-Kept", "k"],
        ["X-User", "u"],
        ["Accept", "*/*"],
      ];
      for (let i = 0; i < 2; i++) await apps.ask(port, request("GET", "/", fields));
      const truth = [
        ["k", "u", "*/*", null],
        ["accept", "host", "x-kept", "x-user"],
      ];
      expect(looks).toEqual([...truth, ...truth]);
      for (const call of upstream.calls) {
        expect(["x-kept", "x-user", "accept"].map((name) => call.get(name))).toEqual([
          "k",
          "u",
          "*/*",
        ]);
        expect(call.headers.filter(([name]) => /probe/i.test(name))).toEqual([]);
      }
      expect(upstream.calls).toHaveLength(2);
    },
  );
});
