import { describe, expect, test } from "vitest";
import {
  acceptOf,
  asksForWebSocket,
  checkAnswer,
  createKey,
  isKey,
  takeOverHandshake,
  toAnswerHeaders,
} from "../../../src/websocket/handshake.ts";
import { rfc } from "../../conformance/rfc.ts";

const KEY = "dGhlIHNhbXBsZSBub25jZQ==";

describe("the key of a handshake and its answer", () => {
  test("the answer to the key in RFC 6455 §1.3 is the one in the RFC", async () => {
    expect(await acceptOf("dGhlIHNhbXBsZSBub25jZQ==")).toBe("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  });

  test("a key is 16 random bytes", () => {
    rfc("6455-4.1-key");
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

  test("a handshake gets a key from the proxy, and its extensions are removed", () => {
    rfc("6455-4.1-key", "6455-5.4-intermediary-fragments", "6455-9.1-extensions");
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
    takeOverHandshake(headers);
    const key = headers[1] as string;
    expect(key).toMatch(/^[\w+/]{22}==$/);
    expect(key).not.toBe(KEY);
    const own = ["Sec-WebSocket-Key", key, "Sec-WebSocket-Protocol", "a,b", "X-Other", "1"];
    expect(headers).toEqual(own);
  });

  test.each(["x", `${KEY}, ${KEY}`, "dGhlIHNhbXBsZSBub25jZR==", "", "dGhlIHNhbXBsZSBub25jZQ"])(
    "keeps an invalid key, so that the upstream refuses it: %j",
    (bad) => {
      const headers = ["Sec-WebSocket-Key", bad];
      takeOverHandshake(headers);
      expect(headers).toEqual(["Sec-WebSocket-Key", bad]);
    },
  );

  test("every key from the proxy is valid", () => {
    for (let i = 0; i < 100; i++) expect(isKey(createKey())).toBe(true);
  });
});

describe("the upstream's 101", () => {
  const asked = ["sec-websocket-key", KEY];
  const refused = { code: "http_protocol_error", status: 502 };

  test("an upstream's 101 must answer the key of the proxy's handshake", async () => {
    rfc("6455-4.1-checked");
    const answer = ["Sec-WebSocket-Accept", await acceptOf(KEY)];
    await expect(checkAnswer(answer, asked)).resolves.toBeUndefined();
    const other = ["Sec-WebSocket-Key", createKey()];
    await expect(checkAnswer(answer, other)).rejects.toMatchObject(refused);
    await expect(checkAnswer(answer, [])).rejects.toMatchObject(refused);
    await expect(checkAnswer([], asked)).rejects.toMatchObject(refused);
    const bad = ["Sec-WebSocket-Accept", await acceptOf("x")];
    await expect(checkAnswer(bad, ["Sec-WebSocket-Key", "x"])).rejects.toMatchObject(refused);
  });

  test.each([
    [["a"], "a", true],
    [["a, b"], "b", true],
    [["a", "b ,\tc"], "c", true],
    [["a"], "", true],
    [["a, b"], "a, b", false],
    [["a"], "A", false],
    [[], "a", false],
  ])(
    "that answers an offer of %j with the subprotocol %j is accepted: %s",
    async (offers, chosen, isAllowed) => {
      rfc("6455-4.1-subprotocol");
      const offered = offers.flatMap((offer) => ["Sec-WebSocket-Protocol", offer]);
      const answer = [
        "Sec-WebSocket-Accept",
        await acceptOf(KEY),
        "sec-websocket-protocol",
        chosen,
      ];
      const checked = checkAnswer(answer, [...asked, ...offered]);
      if (isAllowed) await expect(checked).resolves.toBeUndefined();
      else await expect(checked).rejects.toMatchObject(refused);
    },
  );

  test("an upstream's 101 must not choose an extension, because the proxy offers none", async () => {
    rfc("6455-4.1-subprotocol", "6455-9.1-extensions");
    const answer = ["Sec-WebSocket-Accept", await acceptOf(KEY)];
    answer.push("Sec-WebSocket-Extensions", "permessage-deflate");
    await expect(checkAnswer(answer, asked)).rejects.toMatchObject(refused);
  });

  test("the client gets the 101 without the fields that the server itself writes", () => {
    const answer = ["Sec-WebSocket-Accept", "x", "Sec-WebSocket-Protocol", "a", "Set-Cookie", "b"];
    expect([...toAnswerHeaders(answer)]).toEqual([
      ["sec-websocket-protocol", "a"],
      ["set-cookie", "b"],
    ]);
  });
});
