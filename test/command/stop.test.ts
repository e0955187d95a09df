import { once } from "node:events";
import { Agent } from "node:http";
import { connect } from "node:net";
import { describe, expect, test } from "vitest";
import { getRaw, listening, upstream } from "./_command.ts";
import { until, within } from "../helpers/wait.ts";

describe("on a signal", () => {
  test.each(["SIGTERM", "SIGINT"] as const)("%s lets a slow response complete", async (signal) => {
    let finish: (() => void) | undefined;
    upstream.handler = (_, res) => {
      res.write("begun, ");
      finish = () => res.end("and whole");
    };
    const { proxy, origin } = await listening(upstream.url);
    const response = await fetch(origin);
    proxy.child.kill(signal);
    // Under npm, one Ctrl+C reaches the process twice. Send two different signals here, because two equal pending
    // signals merge.
    proxy.child.kill(signal === "SIGINT" ? "SIGTERM" : "SIGINT");
    await proxy.says(/stopping: 1 request still running/);
    await expect(fetch(origin)).rejects.toThrow();
    finish?.();
    expect(await response.text()).toBe("begun, and whole");
    expect(await within(proxy.exit, "the exit")).toBe(0);
    expect(proxy.stderr).toBe("");
  });

  test("a response that begins later has Connection: close", async () => {
    let finish: (() => void) | undefined;
    upstream.handler = (_, res) => (finish = () => res.end("whole"));
    const { proxy, origin } = await listening(upstream.url);
    const agent = new Agent({ keepAlive: true });
    const response = getRaw(origin, agent);
    await until(() => finish !== undefined, "the request at the upstream");
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping/);
    finish?.();
    const [{ headers }, body] = await response;
    expect([headers.connection, body.toString()]).toEqual(["close", "whole"]);
    expect(await within(proxy.exit, "the exit")).toBe(0);
  });

  test("idle client connections do not delay the end of the process", async () => {
    upstream.handler = (_, res) => res.end();
    const { proxy, origin } = await listening(`${upstream.url} --stop-timeout=60000`);
    const agent = new Agent({ keepAlive: true });
    await getRaw(origin, agent);
    const silent = connect(Number(new URL(origin).port), "127.0.0.1");
    await once(silent, "connect");
    proxy.child.kill("SIGTERM");
    expect(await within(proxy.exit, "the exit")).toBe(0);
    expect(proxy.stdout).not.toContain("stopping");
    agent.destroy();
    silent.destroy();
  });

  test("an endless stream is aborted after --stop-timeout", async () => {
    upstream.handler = (_, res) =>
      res.writeHead(200, { "content-type": "text/event-stream" }).write(":\n\n");
    const { proxy, origin } = await listening(`${upstream.url} --stop-timeout 300`);
    const response = await fetch(origin);
    proxy.child.kill("SIGTERM");
    await expect(response.text()).rejects.toThrow();
    expect(await within(proxy.exit, "the exit")).toBe(1);
    expect(proxy.stderr).toBe(
      "fetchway: stopped after 300 ms: 1 request cut off; a longer --stop-timeout gives them more time\n",
    );
  });

  test("a second signal ends the process immediately", async () => {
    upstream.handler = (_, res) => res.write("begun");
    const { proxy, origin } = await listening(`${upstream.url} --stop-timeout=60000`);
    const response = await fetch(origin);
    proxy.child.kill("SIGTERM");
    await proxy.says(/stopping/);
    await until(() => proxy.exited || !proxy.child.kill("SIGINT"), "the exit");
    expect(await proxy.exit).toBe(130);
    expect(proxy.stderr).toMatch(/^fetchway: stopped after \d+ ms: 1 request cut off; .+\n$/);
    await expect(response.text()).rejects.toThrow();
  });
});
