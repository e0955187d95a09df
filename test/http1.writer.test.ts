/** Which bytes a request is, and in which writes they go, over a socket that does what the test says. */
import { describe, expect, test } from "vitest";
import { portableCodec } from "../src/http1/codec.ts";
import { Connection } from "../src/http1/connection.ts";
import { Writer } from "../src/http1/writer.ts";
import { bytes, proxyError } from "./_fakes.ts";
import { FakeSocket, fakeOwner } from "./_sockets.ts";

const head = "POST / HTTP/1.1\r\n\r\n";
const large = "x".repeat(16_385);

function start(length: number | undefined): { writer: Writer; socket: FakeSocket } {
  const socket = new FakeSocket();
  const options = { keepAlive: true, timeout: 0 };
  const connection = new Connection(options, portableCodec, fakeOwner());
  connection.open(socket);
  return { writer: new Writer(connection, head, length), socket };
}

describe("framing", () => {
  test.each([
    ["no body", 0, [], [head]],
    ["a small body goes with its head", 5, ["hello"], [`${head}hello`]],
    ["a large one behind it", large.length, [large], [head, large]],
    ["chunks of a known length", 6, ["abc", "def"], [`${head}abc`, "def"]],
    ["an empty chunk of a known length", 3, ["", "abc"], [head, "abc"]],
    ["an unknown length", undefined, ["abc"], [`${head}3\r\nabc\r\n`, "0\r\n\r\n"]],
    ["an empty chunk would be the last", undefined, ["", "a"], [`${head}1\r\na\r\n`, "0\r\n\r\n"]],
    [
      "a large chunk is not copied",
      undefined,
      [large],
      [`${head}4001\r\n`, large, "\r\n", "0\r\n\r\n"],
    ],
    ["nothing, of an unknown length", undefined, [], [`${head}0\r\n\r\n`]],
  ])("%s", (_, length, chunks, writes) => {
    const { writer, socket } = start(length);
    if (length === 0) writer.flush();
    for (const chunk of chunks) writer.write(bytes(chunk));
    writer.end();
    expect(socket.writes).toEqual(writes);
  });

  test("a head that is flushed is not sent again", () => {
    const { writer, socket } = start(3);
    writer.flush();
    writer.flush();
    writer.write(bytes("abc"));
    expect(socket.writes).toEqual([head, "abc"]);
  });

  test("bytes beyond the announced length are not sent: they would be the next request", () => {
    const { writer, socket } = start(3);
    expect(() => writer.write(bytes("abcd"))).toThrow(proxyError("http_request_error", 400));
    expect(socket.sent).toBe("");
  });

  test("a body that ends before the announced length is an error", () => {
    const { writer } = start(3);
    writer.write(bytes("ab"));
    expect(() => writer.end()).toThrow(proxyError("http_request_error", 400));
  });

  test("characters above 0x7f are single bytes", () => {
    const socket = new FakeSocket();
    const connection = new Connection({ keepAlive: true, timeout: 0 }, portableCodec, fakeOwner());
    connection.open(socket);
    new Writer(connection, "X: \u0080\u00ff", 0).flush();
    expect(socket.writes).toEqual(["X: \u0080\u00ff"]);
  });
});

describe("backpressure", () => {
  test.each([3, undefined])("a write says whether there is room for more (length %s)", (length) => {
    for (const hasRoom of [true, false]) {
      const { writer, socket } = start(length);
      socket.hasRoom = hasRoom;
      expect(writer.write(bytes("abc"))).toBe(hasRoom);
    }
  });

  test("a chunk's memory is free when it is sent", () => {
    const { writer, socket } = start(undefined);
    socket.holdsDone = true;
    let freed = 0;
    writer.write(bytes(large), () => void freed++);
    expect(freed).toBe(0);
    socket.drain();
    expect(freed).toBe(1);
  });

  test("what stops a body is called once, and not when all of it is sent", () => {
    for (const isWhole of [true, false]) {
      const { writer } = start(3);
      let stopped = 0;
      writer.onStop(() => void stopped++);
      if (isWhole) writer.write(bytes("abc"));
      writer.stop();
      writer.stop();
      expect({ stopped, isStopped: writer.isStopped }).toEqual({
        stopped: isWhole ? 0 : 1,
        isStopped: !isWhole,
      });
    }
  });
});
