/** Hooks that fail: `onError` answers, or the framework reports the exception. In both cases the exchange ends. */
import { stripVTControlCharacters } from "node:util";
import { expect } from "vitest";
import type { Answer } from "../helpers/client.ts";
import { secret, type SetupName } from "../hosts/_setups.ts";
import type { Tools } from "./_suite.ts";
import { settled, until, within } from "../helpers/wait.ts";
import { chunk, request } from "../helpers/wire.ts";

const before = ["target", "clientAddress", "pathRewrite", "onRequest"];

/** Returns the ways in which a hook can fail. A synchronous hook cannot return a promise that rejects. */
function waysOf(hook: string): string[] {
  return hook === "clientAddress" ? ["throws"] : ["throws", "rejects"];
}

function expectNoSecret(answer: Answer): void {
  expect(answer.bytes.toString("latin1") + answer.text).not.toMatch(/10\.0\.0\.1|secret/);
}

/** A line, other than the message, that consoles print for an exception: stack, source code, or fields of h3's error. */
const REPORT =
  /^$|^ +(?:at |\.\.\. \d+ lines matching|cause: )|^ *\d+ \||^ +\^$|^ {2}(?:status|statusText|headers|data|body|unhandled): |^}$/;

/**
 * Waits until the host has reported the exceptions of `count` requests on stderr, and expects no other output there.
 * @param message a part of the message of each exception
 */
async function expectReports(t: Tools, count: number, message = secret): Promise<void> {
  let printed = "";
  const read = (): number => (printed += t.host.complaints()).length;
  await until(() => read() > 0 && printed.split(message).length > count, `${count} reports`);
  await settled(read);
  const others = stripVTControlCharacters(printed)
    .split("\n")
    .filter((line) => !line.includes(message) && !REPORT.test(line));
  expect(others).toEqual([]);
}

/** Expects the framework's own answer to an exception. */
function expectFailure(answer: Answer, what: string): void {
  expect(answer.status, what).toBe(500);
  expect(answer.get("proxy-status"), what).toBeUndefined();
  expectNoSecret(answer);
}

/**
 * Sends a request whose body the hook does not read, and then a second request. The body must not be parsed as a request.
 */
async function askTwice(t: Tools, path: string, setup: SetupName): Promise<Answer> {
  const client = await t.connect(setup);
  client.send(request("POST", path, [], "a body that nobody takes"));
  await client.read();
  client.send(request("GET", path));
  return client.read();
}

export const hooks = {
  async "onError answers with 500 when a hook throws before the request is sent"(
    t: Tools,
  ): Promise<void> {
    for (const hook of before) {
      for (const way of waysOf(hook)) {
        const path = `/${hook}/${way}`;
        const answer = await askTwice(t, path, "throwing");
        expect(answer, path).toMatchObject({ status: 500, text: "handled: proxy_internal_error" });
        expectNoSecret(answer);
      }
    }
    expect(t.upstream.calls).toEqual([]);
    expect(await t.ask(request("GET", "/fine"), "throwing")).toMatchObject({ status: 200 });
  },

  async "onError answers with 500 when onResponse throws, and the upstream connection is released"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk("half"));
    for (const way of waysOf("onResponse")) {
      const answer = await t.ask(request("GET", `/onResponse/${way}`), "throwing");
      expect(answer, way).toMatchObject({ status: 500, text: "handled: proxy_internal_error" });
      expectNoSecret(answer);
      const { link } = t.upstream.calls.at(-1) ?? (await t.upstream.call());
      await within(link.closed, `${way}: the upstream's connection closed`);
    }
  },

  async "a hook's exception that onError does not answer reaches the framework, which responds with 500 and reports it"(
    t: Tools,
  ): Promise<void> {
    let count = 0;
    for (const hook of before) {
      for (const way of waysOf(hook)) {
        const path = `/${hook}/${way}`;
        // Use a new connection for each request, because workerd closes the connection after an exception.
        const post = await t.ask(
          request("POST", path, [], "a body that nobody takes"),
          "unhandled",
        );
        expectFailure(post, path);
        expectFailure(await t.ask(request("GET", path), "unhandled"), path);
        const silent = await t.ask(request("GET", `${path}/onError/silent`), "throwing");
        expectFailure(silent, `${path} with an onError that returns nothing`);
        count += 3;
      }
    }
    expect(t.upstream.calls).toEqual([]);
    await expectReports(t, count);
    expect(await t.ask(request("GET", "/fine"), "unhandled")).toMatchObject({ status: 200 });
  },

  async "an exception after the upstream's response releases the upstream connection and is reported"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) =>
      call.write(
        "HTTP/1.1 302 Found\r\nLocation: /redirectTargets/throws\r\n",
        "Transfer-Encoding: chunked\r\n\r\n",
        chunk("half"),
      );
    for (const path of ["/onResponse/throws", "/onResponse/rejects", "/redirected"]) {
      const answer = await t.ask(request("GET", path), "unhandled");
      expectFailure(answer, path);
      const { link } = t.upstream.calls.at(-1) ?? (await t.upstream.call());
      await within(link.closed, `${path}: the upstream's connection closed`);
    }
    expect(t.upstream.calls).toHaveLength(3);
    await expectReports(t, 3);
  },

  async "an onResponse that reads the body of the response and returns nothing is reported, and the client gets 500"(
    t: Tools,
  ): Promise<void> {
    t.upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nread");
    for (const method of ["GET", "POST"]) {
      expectFailure(await t.ask(request(method, "/onResponse/reads"), "unhandled"), method);
    }
    await expectReports(t, 2, "bad option `onResponse`: it has read the body");
    const answered = await t.ask(request("GET", "/onResponse/reads"), "throwing");
    expect(answered).toMatchObject({ status: 500, text: "handled: proxy_internal_error" });
    expect(await t.ask(request("HEAD", "/onResponse/reads"), "unhandled")).toMatchObject({
      status: 200,
    });
  },

  async "an exception of onError reaches the framework"(t: Tools): Promise<void> {
    t.upstream.script = (call) => call.reset();
    for (const way of waysOf("onError")) {
      const path = `/onError/${way}`;
      expectFailure(await t.ask(request("GET", path), "throwing"), path);
      expectFailure(await t.ask(request("GET", `/onRequest/${way}${path}`), "throwing"), path);
    }
    await expectReports(t, 4);
  },

  async "an exception of trustProxy becomes 500, and the upstream gets no request"(
    t: Tools,
  ): Promise<void> {
    for (const bytes of [request("POST", "/", [], "a body"), request("GET", "/")]) {
      expectFailure(await t.ask(bytes, "distrusting"), "trustProxy");
    }
    expect(t.upstream.calls).toEqual([]);
    await expectReports(t, 2);
  },

  async "hooks do not fail for requests that the Request constructor refuses"(
    t: Tools,
  ): Promise<void> {
    // Servers accept these requests, so hooks may get them.
    for (const bytes of [
      request("TRACE", "/"),
      request("GET", "/", [["Host", "a:b:c"]]),
      request("GET", "/", [["Host", "a b"]]),
      request("GET", "/", [["Host", "[::1"]]),
      request("PROPFIND", "/", [["Host", ""]]),
      request("OPTIONS", "*"),
    ]) {
      const answer = await t.ask(bytes, "throwing");
      expect(answer.status, bytes.toString("latin1")).not.toBe(500);
      expectNoSecret(answer);
    }
  },
};
