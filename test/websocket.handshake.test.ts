import { describe, expect, test } from "vitest";
import {
  acceptOf,
  asksForWebSocket,
  checkAnswer,
  createKey,
  takeOverHandshake,
  toAnswerHeaders,
} from "../src/websocket/handshake.ts";

const KEY = "dGhlIHNhbXBsZSBub25jZQ==";

describe("a key and its answer", () => {
  test("the example of RFC 6455 §1.3 is accepted", async () => {
    expect(await acceptOf("dGhlIHNhbXBsZSBub25jZQ==")).toBe("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  });

  test("a key is 16 random bytes", () => {
    expect(atob(createKey())).toHaveLength(16);
    expect(createKey()).not.toBe(createKey());
  });
});

describe("a client's handshake", () => {
  test.each([
    [["Upgrade", "websocket", "Connection", "Upgrade"], true],
    [["upgrade", " WebSocket ", "connection", "keep-alive, upgrade"], true],
    [["Upgrade", "websocket"], false],
    [["Upgrade", "h2c", "Connection", "Upgrade"], false],
    [["Upgrade", "websocket, h2c", "Connection", "Upgrade"], false],
    [["Connection", "Upgrade"], false],
  ])("%j asks for a WebSocket: %s", (headers, asks) => {
    expect(asksForWebSocket(headers)).toBe(asks);
  });

  test("gets a key of the proxy's, and loses its extensions", () => {
    const headers = [
      "Sec-WebSocket-Key",
      KEY,
      "Sec-WebSocket-Extensions",
      "permessage-deflate",
      "sec-websocket-extensions",
      "x",
      "Sec-WebSocket-Protocol",
      "a,b",
      "X-Other",
      "1",
    ];
    const key = takeOverHandshake(headers);
    expect(key).toMatch(/^[\w+/]{22}==$/);
    expect(key).not.toBe(KEY);
    const own = ["Sec-WebSocket-Key", key, "Sec-WebSocket-Protocol", "a,b", "X-Other", "1"];
    expect(headers).toEqual(own);
  });

  test.each(["x", `${KEY}, ${KEY}`, "dGhlIHNhbXBsZSBub25jZR==", "", "dGhlIHNhbXBsZSBub25jZQ"])(
    "keeps a key that is none, for the upstream to refuse: %j",
    (bad) => {
      const headers = ["Sec-WebSocket-Key", bad];
      expect(takeOverHandshake(headers)).toBeUndefined();
      expect(headers).toEqual(["Sec-WebSocket-Key", bad]);
    },
  );

  test("every key of the proxy's is a valid one", () => {
    for (let i = 0; i < 100; i++) {
      expect(takeOverHandshake(["sec-websocket-key", createKey()])).toBeDefined();
    }
  });
});

describe("the upstream's 101", () => {
  test("answers the key of the proxy's handshake", async () => {
    const answer = ["Sec-WebSocket-Accept", await acceptOf(KEY), "Sec-WebSocket-Protocol", "a"];
    await expect(checkAnswer(answer, KEY)).resolves.toBeUndefined();
    await expect(checkAnswer(answer, createKey())).rejects.toMatchObject({ status: 502 });
    await expect(checkAnswer(answer, undefined)).rejects.toMatchObject({ status: 502 });
    await expect(checkAnswer([], KEY)).rejects.toMatchObject({ status: 502 });
  });

  test("must choose no extension, because none was offered", async () => {
    const answer = ["Sec-WebSocket-Accept", await acceptOf(KEY)];
    answer.push("Sec-WebSocket-Extensions", "permessage-deflate");
    await expect(checkAnswer(answer, KEY)).rejects.toMatchObject({ status: 502 });
  });

  test("reaches the client without what the server writes itself", () => {
    const answer = ["Sec-WebSocket-Accept", "x", "Sec-WebSocket-Protocol", "a", "Set-Cookie", "b"];
    expect([...toAnswerHeaders(answer)]).toEqual([
      ["sec-websocket-protocol", "a"],
      ["set-cookie", "b"],
    ]);
  });
});
