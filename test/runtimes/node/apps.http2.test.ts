/**
 * The proxy behind HTTP/2 servers over TLS. It forwards no pseudo-header field, and sends the client no
 * connection-specific field.
 */
import {
  connect,
  createSecureServer,
  type ClientHttp2Session,
  type ClientHttp2Stream,
} from "node:http2";
import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { createProxy, proxyFetch } from "#fetchway";
import { useApps } from "../../helpers/apps.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { until, within } from "../../helpers/wait.ts";
import { chunk, lastChunk } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;
const certificate = await makeCertificate();

const traced = { via: "edge" };

const servers: Record<string, () => Promise<number>> = {
  srvx: () =>
    apps.serve("srvx", {
      fetch: (request) => proxyFetch(request, upstream.url, traced),
      tls: certificate,
    }),
  node() {
    const { nodeHandler } = createProxy({ target: upstream.url, ...traced });
    return apps.listen(createSecureServer(certificate, nodeHandler));
  },
};

interface UpstreamResponse {
  headers: Record<string, unknown>;
  body: string;
  failed: boolean;
}

function receive(stream: ClientHttp2Stream): Promise<UpstreamResponse> {
  const reply: UpstreamResponse = { headers: {}, body: "", failed: false };
  stream.on("response", (headers) => (reply.headers = headers));
  stream.on("data", (data: Buffer) => (reply.body += data.toString("latin1")));
  stream.on("error", () => (reply.failed = true));
  const closed = new Promise<UpstreamResponse>((resolve) =>
    stream.on("close", () => {
      if (stream.rstCode !== 0) reply.failed = true;
      resolve(reply);
    }),
  );
  return within(closed, "the stream's end");
}

type Work = (session: ClientHttp2Session) => Promise<void>;

async function useSession(listen: () => Promise<number>, work: Work): Promise<void> {
  // The client checks the certificate: it trusts only this one.
  const session = connect(`https://localhost:${await listen()}`, {
    ca: certificate.cert,
    lookup: (_host, options, callback) =>
      options.all
        ? callback(null, [{ address: "127.0.0.1", family: 4 }])
        : callback(null, "127.0.0.1", 4),
  });
  try {
    await work(session);
  } finally {
    session.destroy();
  }
}

describe.each(Object.entries(servers))("the HTTP/2 server of %s", (_, listen) => {
  const using = (work: Work): Promise<void> => useSession(listen, work);

  test("GET and POST are forwarded", async () => {
    rfc(
      "9113-8.2.3-cookie",
      "9113-8.3-pseudo-forwarded",
      "9113-8.3.1-host-made",
      "9113-8.3.2-status",
    );
    await using(async (session) => {
      const get = await receive(
        session.request({ ":path": "/x?y=%2F", "x-id": "7", te: "trailers" }),
      );
      expect(get).toMatchObject({
        headers: { ":status": 200, "x-id": "7" },
        body: "",
        failed: false,
      });
      const stream = session.request({ ":method": "POST", ":path": "/", cookie: ["a=1", "b=2"] });
      stream.end("body");
      expect(await receive(stream)).toMatchObject({ body: "body", failed: false });
      const [first, second] = upstream.calls;
      expect(first).toMatchObject({ method: "GET", target: "/x?y=%2F", framing: { kind: "none" } });
      expect(first?.headers.filter(([name]) => name.startsWith(":"))).toEqual([]);
      expect(first?.get("host")).toBe(upstream.authority);
      expect(first?.get("x-forwarded-proto")).toBe("https");
      expect(first?.get("via")).toBe("2.0 edge");
      expect(first?.get("x-forwarded-host")).toMatch(/^localhost:\d+$/);
      expect(second?.text).toBe("body");
      expect(second?.all("cookie").join("; ")).toBe("a=1; b=2");
    });
  });

  test("RFC 9113 §8.3.1: a request whose Host differs from :authority is refused", async () => {
    rfc("9113-8.3.1-authority-counts", "9113-8.3.1-authority-differs");
    await using(async (session) => {
      const other = await receive(
        session.request({ ":path": "/", ":authority": "a.test", host: "other.test" }),
      );
      expect(other.headers[":status"]).toBe(400);
      expect(upstream.calls).toEqual([]);
      const named = { ":path": "/", ":authority": "Shop.test:443", host: "shop.test" };
      const same = await receive(session.request(named));
      expect(same.headers[":status"]).toBe(200);
      expect(apps.only().get("x-forwarded-host")).toBe("shop.test");
    });
  });

  test("response fields pass, except hop-by-hop fields", async () => {
    rfc(
      "9113-8.2-lowercase",
      "9113-8.2.2-connection",
      "9113-8.2.2-translated",
      "9113-10.3-removal",
    );
    upstream.script = (call) =>
      call.reply(
        "203 With a Reason",
        [
          ["Connection", "keep-alive, x-secret"],
          ["Keep-Alive", "timeout=5"],
          ["X-Secret", "s"],
          ["Set-Cookie", "a=1"],
          ["Set-Cookie", "b=2"],
          ["X-Name", "v"],
        ],
        "body",
      );
    await using(async (session) => {
      const { headers, body } = await receive(session.request({ ":path": "/" }));
      expect(headers).toMatchObject({
        ":status": 203,
        "set-cookie": ["a=1", "b=2"],
        "x-name": "v",
      });
      for (const name of ["connection", "keep-alive", "x-secret"])
        expect(headers[name]).toBe(undefined);
      expect(body).toBe("body");
    });
  });

  test("responses with 204 or 304, and responses to HEAD, have no body", async () => {
    rfc("9113-8.3.2-status");
    await using(async (session) => {
      for (const line of ["204 No Content", "304 Not Modified"]) {
        upstream.script = (call) => call.write(`HTTP/1.1 ${line}\r\nETag: "x"\r\n\r\n`);
        const { headers, body, failed } = await receive(session.request({ ":path": "/" }));
        expect([headers[":status"], headers["etag"], body, failed]).toEqual([
          Number(line.slice(0, 3)),
          '"x"',
          "",
          false,
        ]);
      }
      upstream.script = (call) => call.reply(200, [["Content-Length", "1234"]], null);
      const head = await receive(session.request({ ":method": "HEAD", ":path": "/" }));
      expect(head).toMatchObject({
        headers: { ":status": 200, "content-length": "1234" },
        body: "",
        failed: false,
      });
    });
  });

  test("request body and response body stream at the same time", async () => {
    upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
      if (call.length > 0) call.write(chunk(call.body));
      call.onData = (piece) => call.write(chunk(piece));
      void call.done.then(() => call.write(lastChunk));
    };
    await using(async (session) => {
      const stream = session.request({ ":method": "POST", ":path": "/" });
      let seen = "";
      stream.on("data", (data: Buffer) => (seen += data.toString()));
      const reply = receive(stream);
      for (const piece of ["one ", "two ", "three"]) {
        const wanted = seen + piece;
        stream.write(piece);
        await until(() => seen === wanted, `${JSON.stringify(wanted)} to come back`);
      }
      stream.end();
      expect(await reply).toMatchObject({ body: "one two three", failed: false });
    });
  });

  test("the upstream request is closed when the client closes its stream during the response", async () => {
    upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    await using(async (session) => {
      const stream = session.request({ ":path": "/" });
      stream.on("error", () => {});
      await within(new Promise((resolve) => stream.once("data", resolve)), "half the body");
      stream.close(8);
      await within(apps.only().link.closed, "the upstream's connection closed");
    });
  });

  test("the upstream request is closed when the client closes its stream before the response", async () => {
    upstream.script = () => {};
    await using(async (session) => {
      const stream = session.request({ ":path": "/" });
      stream.on("error", () => {});
      const call = await upstream.call();
      stream.close(8);
      await within(call.link.closed, "the upstream's connection closed");
    });
  });

  test("the client's stream fails if the upstream truncates the body", async () => {
    upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    await using(async (session) => {
      const stream = session.request({ ":path": "/" });
      const reply = receive(stream);
      await within(new Promise((resolve) => stream.once("data", resolve)), "half the body");
      apps.only().reset();
      expect(await reply).toMatchObject({ body: "half", failed: true });
    });
  });
});

test("if a hook makes a field of the response invalid, the upstream's connection is closed before the client gets a response", async () => {
  const { nodeHandler } = createProxy({
    target: upstream.url,
    onResponse: ({ headers }) => headers.set("x-a", "\x01"),
  });
  const errors: unknown[] = [];
  const server = createSecureServer(certificate, (req, res) =>
    nodeHandler(req, res, (error) => void errors.push(error)),
  );
  upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
  await useSession(
    () => apps.listen(server),
    async (session) => {
      const stream = session.request({ ":path": "/" });
      stream.on("error", () => {});
      const call = await upstream.call();
      await within(call.link.closed, "the upstream's connection closed");
      expect(errors).toHaveLength(1);
      expect(stream.closed).toBe(false);
    },
  );
});

test("the client gets the response fields of middleware, and the cookies of both middleware and upstream", async () => {
  const { nodeHandler } = createProxy({ target: upstream.url });
  const server = createSecureServer(certificate, (req, res) => {
    res.setHeader("X-Before", ["1", "2"]);
    res.setHeader("x-both", "middleware");
    res.setHeader("Set-Cookie", "session=1");
    nodeHandler(req, res);
  });
  const fields: [string, string][] = [
    ["X-Both", "upstream"],
    ["Set-Cookie", "a=1"],
    ["Set-Cookie", "b=2"],
  ];
  upstream.script = (call) => call.reply(200, fields, "body");
  await useSession(
    () => apps.listen(server),
    async (session) => {
      const { headers, body } = await receive(session.request({ ":path": "/" }));
      expect(headers).toMatchObject({
        "set-cookie": ["session=1", "a=1", "b=2"],
        "x-before": "1, 2",
        "x-both": "upstream",
      });
      expect(body).toBe("body");
      upstream.script = (call) => call.reply(204, []);
      const answer = await receive(session.request({ ":path": "/" }));
      expect(answer.headers).toMatchObject({ "set-cookie": ["session=1"], "x-both": "middleware" });
    },
  );
});
