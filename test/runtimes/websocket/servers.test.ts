/** WebSockets on Bun and Deno by each way to wire a server, and by the ready-to-run entry and the command. */
import { once } from "node:events";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { connect } from "../../helpers/client.ts";
import { echoMessages, handshake, sayHello } from "../../helpers/handshake.ts";
import { type Program, startProgram } from "../../helpers/program.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { pause, until, within } from "../../helpers/wait.ts";
import { accept } from "../../helpers/websocket.ts";
import { request } from "../../helpers/wire.ts";

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

type Ports = Record<string, number>;

const run = { bun: ["run"], deno: ["run", "-A"] };

async function portOf(program: Program): Promise<string> {
  return (await program.printed(/https?:\/\/[\w.[\]:-]*:(\d+)/))[1] as string;
}

describe.each(["bun", "deno"] as const)("on %s", (tool) => {
  let program: Program;
  let ports: Ports = {};
  beforeAll(async () => {
    program = startProgram(tool, [...run[tool], "test/runtimes/websocket/_server.ts"], {
      UPSTREAM: upstream.url,
    });
    ports = JSON.parse((await program.printed(/^ports (.*)$/m))[1] as string) as Ports;
  });
  afterAll(() => program[Symbol.asyncDispose]());

  const urlOf = (server: string): string => `ws://127.0.0.1:${ports[server]}`;

  async function refusal(server: string): Promise<number> {
    const client = await connect(ports[server] as number);
    client.send(request("GET", "/", handshake));
    const { status } = await client.read();
    client.leave("FIN");
    return status;
  }

  test.each(["plain", "srvx", "srvxCall", "h3"])(
    "the server `%s` carries WebSockets",
    async (server) => {
      const sockets = echoMessages(upstream);
      expect(await sayHello(`${urlOf(server)}/a?b`)).toBe("hello");
      expect(upstream.calls[0]?.target).toBe("/a?b");
      await until(() => sockets[0]?.readyState === WebSocket.CLOSED, "the end at the upstream");
    },
  );

  test.runIf(tool === "bun")(
    "a server without the proxy's handlers responds with 501, and the printed message names the fix",
    async () => {
      echoMessages(upstream);
      expect(await refusal("unhandled")).toBe(501);
      await program.printed(
        /does not call the proxy.s handlers.*give Bun.s server `websocket: proxy\.websocket`/,
      );
      await within(
        upstream.links[0]?.closed as Promise<void>,
        "the end of the upstream's connection",
      );
      expect(await refusal("unwired")).toBe(501);
    },
  );

  test("tunnelTimeout closes only a silent WebSocket", async () => {
    echoMessages(upstream);
    const socket = new WebSocket(urlOf("silent"));
    let code: number | undefined;
    socket.on("close", (closed) => (code = closed));
    await within(once(socket, "open"), "the opening");
    for (let i = 0; i < 6; i++) {
      const answered = once(socket, "message");
      socket.send("hello");
      await within(answered, "the echo");
      await pause(600);
    }
    expect(code).toBeUndefined();
    await until(() => code !== undefined, "the end of the silent WebSocket");
    expect(code).toBe(1001);
    await within(
      upstream.links[0]?.closed as Promise<void>,
      "the end of the upstream's connection",
    );
  });

  test("the upstream's WebSocket is closed if onResponse replaces the response", async () => {
    let isClosed = false;
    upstream.script = async (call) =>
      void (await accept(call)).on("close", () => (isClosed = true));
    expect(await refusal("replaced")).toBe(403);
    await until(() => isClosed, "the end at the upstream");
  });

  test("stats() counts WebSockets, and close() ends them", async () => {
    echoMessages(upstream);
    const socket = new WebSocket(urlOf("closing"));
    socket.on("error", () => {});
    await within(once(socket, "open"), "the opening");
    const origin = urlOf("closing").replace("ws:", "http:");
    const { origins } = (await (await fetch(`${origin}/stats`)).json()) as {
      origins: Record<string, { tunnels: number }>;
    };
    expect(origins[upstream.url]?.tunnels).toBe(1);
    const closed = once(socket, "close");
    expect(await (await fetch(`${origin}/close`)).text()).toBe("closed");
    await within(closed, "the end of the WebSocket");
  });

  test("the ready-to-run entry carries WebSockets", async () => {
    echoMessages(upstream);
    const args = { bun: ["run"], deno: ["serve", "-A", "--port", "0"] }[tool];
    await using entry = startProgram(tool, [...args, "runtimes/server.ts"], {
      FETCHWAY_TARGET: upstream.url,
      PORT: "0",
    });
    expect(await sayHello(`ws://127.0.0.1:${await portOf(entry)}`)).toBe("hello");
  });

  test("the command carries WebSockets", async () => {
    echoMessages(upstream);
    const args = [...run[tool], "command/main.ts", upstream.url, "--port", "0"];
    await using command = startProgram(tool, args);
    expect(await sayHello(`ws://127.0.0.1:${await portOf(command)}`)).toBe("hello");
  });
});

describe("handlers of the app or of a framework, on Bun", () => {
  async function startWith(handlers: string): Promise<Program & { port: number }> {
    const env = { UPSTREAM: upstream.url, HANDLERS: handlers };
    const program = startProgram("bun", ["run", "test/runtimes/websocket/_handlers.ts"], env);
    return Object.assign(program, { port: Number((await program.printed(/^port (\d+)$/m))[1]) });
  }

  async function shakeHands({ port }: { port: number }): Promise<number> {
    const client = await connect(port);
    client.send(request("GET", "/", handshake));
    const { status } = await client.read();
    client.leave("FIN");
    return status;
  }

  async function expectOwn({ port }: { port: number }): Promise<void> {
    expect(await sayHello(`ws://127.0.0.1:${port}/own`)).toBe("own hello");
  }

  test.each(["strict", "lenient"])(
    "%s: a handshake gets 501 before the upstream is asked",
    async (handlers) => {
      await using program = await startWith(handlers);
      expect(await shakeHands(program)).toBe(501);
      await program.printed(/begin with `\.\.\.proxy\.websocket`/);
      expect(upstream.calls).toEqual([]);
      expect(await shakeHands(program)).toBe(501);
      await expectOwn(program);
      expect(program.code()).toBeUndefined();
    },
  );

  test("if the client is connected to a server without the proxy's handlers, which another server has, the upstream's WebSocket is closed", async () => {
    echoMessages(upstream);
    await using program = await startWith("lenientBesideOthers");
    const client = new WebSocket(`ws://127.0.0.1:${program.port}`).on("error", () => {});
    await program.printed(/does not call the proxy's handlers/);
    const [link] = upstream.links;
    await within(link?.closed as Promise<void>, "the end of the upstream's connection");
    client.terminate();
  });

  test.each(["composed", "called"])(
    "%s: WebSockets of the proxy and of the app are carried",
    async (handlers) => {
      const sockets = echoMessages(upstream);
      await using program = await startWith(handlers);
      expect(await sayHello(`ws://127.0.0.1:${program.port}/a`)).toBe("hello");
      await until(() => sockets[0]?.readyState === WebSocket.CLOSED, "the end at the upstream");
      await expectOwn(program);
    },
  );
});
