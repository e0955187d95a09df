import { expect, test } from "vitest";
import { chooseProtocol } from "../../../src/fields/protocols.ts";
import { readUpgrade } from "../../../src/request/upgrade.ts";
import { rfc } from "../../conformance/rfc.ts";
import { fakeIncoming, proxyError } from "../../helpers/fakes.ts";

test.each(["websocket", "WebSocket", "h2c,\tWEBSOCKET ", "websocket/13", "websocket /13,"])(
  "%j asks for a WebSocket",
  (upgrade) => {
    rfc("9110-7.8-case");
    expect(chooseProtocol(upgrade, ["websocket"])).toBe("websocket");
  },
);

test.each(["", "h2c", "TLS/1.0, websockets", "x-websocket", "web socket", "websocket x"])(
  "the Upgrade field %j is ignored",
  (upgrade) => {
    expect(chooseProtocol(upgrade, ["websocket"])).toBeUndefined();
    expect(readUpgrade(fakeIncoming(), upgrade, ["websocket"])).toBeUndefined();
  },
);

test("the first protocol of Upgrade whose name and version the proxy forwards is chosen", () => {
  expect(chooseProtocol("h2c, tcp, websocket", ["websocket", "tcp"])).toBe("tcp");
  expect(chooseProtocol("x/2, x/1", ["x/1"])).toBe("x/1");
  expect(chooseProtocol("x", ["x/1"])).toBeUndefined();
});

const connection = (value: string): string[] => ["Host", "proxy.test", "connection", value];
const read = (over: Parameters<typeof fakeIncoming>[0]): string | undefined =>
  readUpgrade(fakeIncoming(over), "websocket", ["websocket"], ": call proxy.attach(server)");

test.each([
  ["another method", { method: "POST", headers: connection("Upgrade") }],
  ["HEAD", { method: "HEAD", headers: connection("Upgrade") }],
  ["HTTP/1.0", { version: () => "1.0", headers: connection("Upgrade") }],
  ["HTTP/2", { version: () => "2.0", headers: connection("Upgrade") }],
  ["no connection option", { headers: connection("keep-alive, upgraded") }],
  ["a body but no connection option", { headers: ["Content-Length", "5"] }],
])("RFC 9110 §7.8: Upgrade is ignored with %s", (_, over) => {
  expect(read(over)).toBeUndefined();
});

test("an upgrade that the server itself hands over does not need the connection option", () => {
  expect(read({ upgrade: "websocket" })).toBe("websocket");
  expect(read({ upgrade: "websocket", headers: connection("x, Upgrade") })).toBe("websocket");
});

test("an upgrade that the server does not hand over gets 501, with a reason for the operator", () => {
  const refused = (): unknown => read({ headers: connection("keep-alive,\tUPGRADE") });
  expect(refused).toThrow(proxyError("http_request_error", 501));
  expect(refused).toThrow(
    /asks to switch to websocket.*does not hand over upgrades: call proxy\.attach\(server\)$/,
  );
});

test.each(["Content-Length", "transfer-encoding"])("an upgrade with %s gets 400", (name) => {
  const headers = [...connection("Upgrade"), name, name === "Content-Length" ? "1" : "chunked"];
  expect(() => read({ headers })).toThrow(proxyError("http_request_error", 400));
  expect(() => read({ headers, upgrade: "websocket" })).toThrow(
    proxyError("http_request_error", 400),
  );
});

test("an upgrade with exactly Content-Length: 0, which Java's WebSocket client sends, counts as one without a body", () => {
  const headers = [...connection("Upgrade"), "Content-Length", "0"];
  expect(read({ headers, upgrade: "websocket" })).toBe("websocket");
  for (const length of ["00", "0, 0", " 0"]) {
    const other = [...connection("Upgrade"), "Content-Length", length];
    expect(() => read({ headers: other, upgrade: "websocket" })).toThrow(/Content-Length/);
  }
});

test.each([
  ["GET", "websocket", [], "websocket"],
  ["POST", "websocket", [], undefined],
  ["POST", "tcp", [], "tcp"],
  ["POST", "tcp", ["Content-Length", "0"], "tcp"],
  ["POST", "tcp", ["Content-Length", "5"], undefined],
  ["POST", "tcp", ["Transfer-Encoding", "chunked"], undefined],
])("the protocol of an upgrade by %s to %s with %j is %s", (method, protocol, fields, expected) => {
  const headers = ["Connection", "Upgrade", "Upgrade", protocol, ...fields];
  const incoming = fakeIncoming({ method, headers, upgrade: protocol });
  expect(readUpgrade(incoming, protocol, ["websocket", "tcp"])).toBe(expected);
});
