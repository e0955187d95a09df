/** The answers of Node's server to requests that its parser refuses while another response is being sent. */
import { createServer, type IncomingMessage, type Server } from "node:http";
import { expect, onTestFinished, test } from "vitest";
import type { RequestEnd } from "../../runtimes/node.ts";
import { answerRefusals, correctEnd } from "../../command/limits/ownanswers.ts";
import { clientGone } from "../../src/error.ts";
import { connect } from "../helpers/client.ts";
import { listen } from "../helpers/serve.ts";
import { until } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

async function serve(
  listener: NonNullable<Parameters<typeof createServer>[1]>,
): Promise<{ port: number; ends: RequestEnd[]; server: Server }> {
  const ends: RequestEnd[] = [];
  const server = createServer(listener);
  answerRefusals(server, 60_000, (end) => void ends.push(end));
  onTestFinished(() => server.close().closeAllConnections());
  return { port: await listen(server), ends, server };
}

/** The end that a proxy reports for a request whose client has disconnected. */
function endOf(req: IncomingMessage, status: number): RequestEnd {
  const web = { runtime: { node: { req } } } as unknown as Request;
  return { status, error: clientGone(), request: web } as RequestEnd;
}

test("the answer to a malformed request is not written into a running response, whose end is reported with the cause", async () => {
  let end: Partial<RequestEnd> | undefined;
  const { port, ends } = await serve((req, res) => {
    res.writeHead(200, { "content-length": 1000 }).write("begun");
    req.on("error", () => {});
    res.on("close", () => {
      end = correctEnd(endOf(req, 200));
    });
  });
  const client = await connect(port);
  client.send(request("POST", "/", [["Transfer-Encoding", "chunked"]]));
  expect((await client.readHead()).status).toBe(200);
  client.send("ZZ\r\n");
  expect((await client.rest()).toString()).toBe("begun");
  await until(() => end !== undefined, "the end");
  expect(end).toMatchObject({
    status: 200,
    error: {
      status: 400,
      message: "the request is not valid HTTP/1.1: Invalid character in chunk size",
    },
  });
  expect(ends).toEqual([]);
});

test("a client that disconnects before the end of its request body is reported as disconnected", async () => {
  let end: Partial<RequestEnd> | undefined;
  const { port, ends } = await serve((req, res) => {
    req.on("error", () => {}).resume();
    res.on("close", () => {
      end = correctEnd(endOf(req, 499));
    });
  });
  const client = await connect(port);
  client.send(request("POST", "/", [["Content-Length", "10"]]), "abc");
  client.finish();
  await until(() => end !== undefined, "the end");
  expect(end).toMatchObject({ status: 499, error: { status: 499 } });
  expect(ends).toEqual([]);
});

test("the report of a malformed request names the last request whose line comes before the error", async () => {
  const { port, ends } = await serve((_, res) => res.end());
  const client = await connect(port);
  client.send(request("GET", "/first"));
  expect((await client.read()).status).toBe(200);
  client.send("GET /second?a HTTP/1.1\r\nHost: a\r\nX y\r\n\r\nGET /third HTTP/1.1\r\n\r\n");
  expect((await client.read()).status).toBe(400);
  expect(ends).toMatchObject([{ method: "GET", path: "/second?a", clientAddress: "127.0.0.1" }]);
});
