/** Interim responses (RFC 9110 §15.2), which the upstream sends before the final response, and the clients that get them. */
import { expect } from "vitest";
import type { Answer, Client } from "../helpers/client.ts";
import { rfc } from "../conformance/rfc.ts";
import { repeatsInterimFields } from "../hosts/_node.ts";
import type { Tools } from "./_suite.ts";
import { settled, until } from "../helpers/wait.ts";
import { request, type Header } from "../helpers/wire.ts";

const hints = (...headers: string[]): string =>
  `HTTP/1.1 103 Early Hints\r\n${headers.map((line) => `${line}\r\n`).join("")}\r\n`;

const EXPECT: Header = ["Expect", "100-continue"];

function expectFields(answer: Answer, at: number, fields: Header[]): void {
  const { status, headers } = answer.interim[at] ?? {};
  // Compare names in lower case, because older versions of Node change their case.
  const seen = headers?.map(([name, value]) => [name.toLowerCase(), value]);
  const wanted = repeatsInterimFields ? fields : joinRepeated(fields);
  expect({ status, seen }).toEqual({ status: 103, seen: wanted });
}

/** Joins the lines of each field. Older versions of Node do that, as docs/http2.md says. */
function joinRepeated(fields: Header[]): Header[] {
  const byName = Map.groupBy(fields, ([name]) => name);
  return [...byName].map(([name, lines]) => [name, lines.map(([, value]) => value).join(", ")]);
}

/** Returns the answer to a request whose upstream sends these interim responses before the final one. */
async function askInSteps(t: Tools, interim: string[], setup?: "hooked"): Promise<Answer> {
  t.upstream.script = (call) => call.write(interim.join(""));
  const client: Client = await t.connect(setup);
  client.send(request("GET", "/"));
  const answering = client.read();
  const call = await t.upstream.call();
  call.reply(200, [], "final");
  const answer = await answering;
  expect(answer).toMatchObject({ status: 200, text: "final" });
  return answer;
}

export const interim = {
  async "interim responses reach the client in order, with repeated fields"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-15.2-forward");
    const answer = await askInSteps(t, [
      hints("Link: </a.css>; rel=preload", "Link: </b.js>; rel=preload", "X-Hint: 1", "X-Hint: 2"),
      hints("Link: </c.css>; rel=preload"),
    ]);
    expect(answer.interim).toHaveLength(2);
    expectFields(answer, 0, [
      ["link", "</a.css>; rel=preload"],
      ["link", "</b.js>; rel=preload"],
      ["x-hint", "1"],
      ["x-hint", "2"],
    ]);
    expectFields(answer, 1, [["link", "</c.css>; rel=preload"]]);
  },

  async "RFC 9110 §15.2: 103 responses reach the client, in their order"(t: Tools): Promise<void> {
    rfc("9110-15.2-forward");
    const links = ["</a.css>; rel=preload", "</b.css>; rel=preload"];
    const answer = await askInSteps(
      t,
      links.map((link) => hints(`Link: ${link}`)),
    );
    expect(answer.interim.map((head) => [head.status, head.get("link")])).toEqual(
      links.map((link) => [103, link]),
    );
  },

  async "an interim response reaches the client before the final one has begun"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.write(hints("Link: </a>; rel=preload"));
    const client = await t.connect();
    client.send(request("GET", "/"));
    const answering = client.read();
    // On some hosts, the client gets no response, and the promise rejects when the test ends.
    answering.catch(() => {});
    const call = await t.upstream.call();
    await until(() => client.interim === 1, "the interim response");
    call.reply(200, [], "final");
    expect(await answering).toMatchObject({ status: 200, text: "final" });
  },

  async "an interim response reaches the client without hop-by-hop fields and those named in Connection"(
    t: Tools,
  ): Promise<void> {
    const answer = await askInSteps(t, [
      hints(
        "Link: </a>; rel=preload",
        "Connection: x-secret, connection-777",
        "Connection: x-other",
        "Keep-Alive: timeout=7",
        "X-Secret: 777",
        "X_Other: 777",
        "Proxy-Authenticate: Basic",
        "Alt-Svc: clear",
        "X-Kept: yes",
      ),
    ]);
    expect(answer.interim).toHaveLength(1);
    expectFields(answer, 0, [
      ["link", "</a>; rel=preload"],
      ["x-kept", "yes"],
    ]);
  },

  async "an HTTP/1.0 client gets no interim response"(t: Tools): Promise<void> {
    rfc("9110-15.2-http10");
    t.upstream.script = (call) => {
      // A proxy may forward the request as HTTP/1.0. Then the upstream must not send interim responses.
      if (!/ HTTP\/1\.0\r\n/.test(call.head)) call.write(hints("Link: </a>; rel=preload"));
      call.reply(200, [], "final");
    };
    const answer = await t.ask("GET / HTTP/1.0\r\nHost: proxy.test\r\n\r\n");
    expect(answer).toMatchObject({ status: 200, text: "final", interim: [] });
  },

  async "an interim response for a pipelined request is not sent inside the previous response, or inside its own"(
    t: Tools,
  ): Promise<void> {
    for (const setup of ["default", "hooked"] as const) {
      t.upstream.script = async (call) => {
        if (call.target === "/second") {
          call.write(hints("Link: </a>; rel=preload"));
          return call.reply(200, [], "second");
        }
        call.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfirst");
        // Some servers forward pipelined requests immediately. Wait until no further request arrives, so that such a server
        // gets the whole second response while the first one is incomplete.
        await settled(() => t.upstream.calls.length, undefined, 100);
        call.write(" end");
      };
      const client = await t.connect(setup);
      client.send(request("GET", "/first"), request("GET", "/second"));
      expect(await client.read()).toMatchObject({ status: 200, text: "first end" });
      expect(await client.read()).toMatchObject({ status: 200, text: "second" });
      await t.upstream.reset();
    }
  },

  async "the upstream's 100 does not reach a client that has sent no Expect"(
    t: Tools,
  ): Promise<void> {
    const answer = await askInSteps(t, ["HTTP/1.1 100 Continue\r\nX-A: b\r\n\r\n"]);
    expect(answer.interim).toEqual([]);
  },

  async "Expect: 100-continue is forwarded, and the client gets its 100 when the upstream sends one"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-10.1.1-proxy");
    t.upstream.script = () => {};
    const client = await t.connect();
    client.send(request("POST", "/", [EXPECT, ["Content-Length", "5"]]));
    const answering = client.read();
    answering.catch(() => {});
    const call = await t.upstream.call();
    expect(call.all("expect")).toEqual(["100-continue"]);
    expect(client.interim).toBe(0);
    call.write("HTTP/1.1 100 Continue\r\n\r\n");
    await until(() => client.interim === 1, "100 Continue");
    client.send("hello");
    await call.done;
    expect(call.text).toBe("hello");
    call.reply(200, [], "thanks");
    expect(await answering).toMatchObject({ status: 200, text: "thanks" });
  },

  async "an upstream that refuses Expect: 100-continue with 413 never gets the body"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.reply(413, [], "too large");
    const client = await t.connect();
    client.send(request("POST", "/", [EXPECT, ["Content-Length", "500000"]]));
    const answer = await client.read();
    expect(answer).toMatchObject({ status: 413, text: "too large", interim: [] });
    expect(answer.get("connection")).toBe("close");
    expect(t.upstream.calls.map(({ length }) => length)).toEqual([0]);
  },

  async "onInformational sees the interim responses of its request, without their connection fields"(
    t: Tools,
  ): Promise<void> {
    const answer = await askInSteps(
      t,
      ["HTTP/1.1 102 Processing\r\n\r\n", hints("Link: </a>", "Connection: x-b", "X-B: c")],
      "hooked",
    );
    expect(answer.get("x-informed")).toBe("102; 103 </a> null");
    t.upstream.script = (call) => call.reply(200, [], "final");
    expect((await t.ask(request("GET", "/"), "hooked")).get("x-informed")).toBe(undefined);
  },
};
