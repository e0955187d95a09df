/** Interim responses on versions of Node whose `writeInformation` is missing or different. */
import { ServerResponse } from "node:http";
import { afterEach, expect, test, vi } from "vitest";
import { createProxy } from "../../../../runtimes/node.ts";
import { useApps } from "../../../helpers/apps.ts";
import { request } from "../../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;

type WithInformation = { writeInformation?: (status: number, headers: unknown) => void };
const prototype = ServerResponse.prototype as WithInformation;
const original = prototype.writeInformation;

afterEach(() => {
  if (original === undefined) delete prototype.writeInformation;
  else prototype.writeInformation = original;
});

const HINT = [
  "HTTP/1.1 103 Early Hints",
  "Link: </a>; rel=preload",
  "Link: </b>; rel=preload",
  "X-C: 1",
  "Set-Cookie: d=1",
  "x-c: 2",
  "Set-Cookie: d=2",
  "\r\n",
].join("\r\n");
const BARE = "HTTP/1.1 103 Early Hints\r\nX-C: 1\r\n\r\n";
const BAD = "HTTP/1.1 103 Early Hints\r\nLink: no link at all\r\n\r\n";
const OTHERS = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 110 Unknown\r\n\r\n";

/** Makes the upstream send `interim` before a 200. Returns the status and the fields of each interim response received. */
async function ask(interim: string): Promise<unknown[]> {
  const { nodeHandler } = createProxy({ target: upstream.url });
  const client = await apps.connect(await apps.serve("node", nodeHandler));
  upstream.script = (call) => {
    call.write(interim);
    call.reply(200, [], "final");
  };
  client.send(request("GET", "/"));
  const answer = await client.read();
  expect(answer).toMatchObject({ status: 200, text: "final" });
  return answer.interim.map(({ status, headers }) => {
    const fields = headers.map(([name, value]) => `${name.toLowerCase()}: ${value}`);
    return [status as unknown].concat(fields);
  });
}

test("without `writeInformation`, a 103 is sent by writeEarlyHints, and left out without Link", async () => {
  delete prototype.writeInformation;
  // Replace the older method, because newer versions of Node implement it by `writeInformation`.
  const early = vi.spyOn(ServerResponse.prototype, "writeEarlyHints").mockImplementation(function (
    this: ServerResponse,
    { link, ...others },
  ) {
    const raw = this as unknown as { _writeRaw(text: string): void };
    const lines = Object.entries(others).map(([name, value]) => `${name}: ${String(value)}\r\n`);
    const links = [link].flat().join(", ");
    raw._writeRaw(`HTTP/1.1 103 Early Hints\r\nLink: ${links}\r\n${lines.join("")}\r\n`);
  });
  try {
    expect(await ask(HINT)).toEqual([
      [103, "link: </a>; rel=preload, </b>; rel=preload", "x-c: 1, 2", "set-cookie: d=2"],
    ]);
    expect(await ask(BARE)).toEqual([]);
  } finally {
    early.mockRestore();
  }
});

test("a `writeInformation` that does not accept a list of fields is not used", async () => {
  const write = vi.fn();
  prototype.writeInformation = write;
  expect(await ask(BARE)).toEqual([]);
  // The only call is Fetchway's check of the method, with a fake response.
  expect(write).toHaveBeenCalledTimes(1);
  expect(write.mock.contexts[0]).not.toBeInstanceOf(ServerResponse);
});

test("if Node refuses the Link field of a 103, the client still gets the final response", async () => {
  delete prototype.writeInformation;
  expect(await ask(BAD)).toEqual([]);
});

test.runIf(original !== undefined)(
  "`writeInformation` of this Node writes each field, and any status",
  async () => {
    expect(await ask(HINT)).toEqual([
      [
        103,
        "link: </a>; rel=preload",
        "link: </b>; rel=preload",
        "x-c: 1",
        "set-cookie: d=1",
        "x-c: 2",
        "set-cookie: d=2",
      ],
    ]);
    expect(await ask(OTHERS)).toEqual([[102], [110]]);
    expect(await ask(BARE)).toEqual([[103, "x-c: 1"]]);
  },
);
