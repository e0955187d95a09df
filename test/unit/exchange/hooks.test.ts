import { describe, expect, test } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { takeDraft, toDraft } from "../../../src/exchange/hooks.ts";
import { MisuseError } from "../../../src/misuse.ts";
import type { RequestDraft } from "../../../src/options/hookoptions.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import { UnframedBody } from "../../../src/body/unframed.ts";
import { bytes, fakeRequest, proxyError, streamOf } from "../../helpers/fakes.ts";

/** Returns the upstream request after a hook has changed its draft. */
function changed(hop: UpstreamRequest, change: (draft: RequestDraft) => void): UpstreamRequest {
  const draft = toDraft(hop);
  change(draft);
  return takeDraft(hop, draft);
}

const refused = proxyError("http_request_error", 400);

test("the draft of onRequest shows method, path and fields of the upstream request", () => {
  const hop = fakeRequest({ method: "PUT", path: "/a?b", headers: ["X-A", "1", "x-a", "2"] });
  const draft = toDraft(hop);
  expect(draft).toMatchObject({ method: "PUT", path: "/a?b", body: undefined });
  expect(Array.from(draft.headers)).toEqual([["x-a", "1, 2"]]);
});

test("a draft that onRequest does not change leaves the upstream request unchanged", () => {
  const body = streamOf([]);
  const hop = fakeRequest({ headers: ["x-a", "1"], host: "a.test", body, contentLength: 3 });
  expect(changed(hop, () => {})).toEqual(hop);
});

test("changes of a draft result in a new request, and the given request stays unchanged", () => {
  const hop = fakeRequest({ headers: ["x-a", "1"] });
  const next = changed(hop, (draft) => {
    draft.method = "PATCH";
    draft.path = "/new";
    draft.headers.set("x-b", "2");
  });
  expect(next).toEqual({
    ...hop,
    method: "PATCH",
    path: "/new",
    headers: ["x-a", "1", "x-b", "2"],
  });
  expect(hop).toMatchObject({ method: "GET", path: "/", headers: ["x-a", "1"] });
});

describe("members that a draft does not have", () => {
  const set = (name: string) => (draft: RequestDraft) => void Object.assign(draft, { [name]: "x" });

  test.each([
    ["boby", "did you mean `body`?"],
    ["Headers", "did you mean `headers`?"],
    ["pathname", "there are method, path, headers, body"],
    ["__proto", "there are method, path, headers, body"],
  ])("setting `%s` throws an error that names the member and the fix: %s", (name, fix) => {
    const change = (): unknown => changed(fakeRequest(), set(name));
    expect(change).toThrow(TypeError);
    expect(change).toThrow(`bad option \`onRequest\`: a draft has no \`${name}\`; ${fix}`);
  });
});

describe("the fields of a draft", () => {
  const sent = fakeRequest({ headers: ["X-B", "1", "X-A", "2", "x-b", "3"] });

  test("a hook that does not read the fields leaves them as the client has sent them", () => {
    const next = changed(sent, (draft) => (draft.method = "PUT"));
    expect(next).toEqual({ ...sent, method: "PUT" });
  });

  test("a hook that reads the fields leaves them as the client has sent them", () => {
    const next = changed(sent, ({ headers }) => void headers.get("x-b"));
    expect(next.headers).toEqual(sent.headers);
  });

  test("fields that a hook does not change keep their order, their names and their lines", () => {
    const next = changed(sent, ({ headers }) => headers.set("X-A", " 4 "));
    expect(next.headers).toEqual(["X-B", "1", "x-b", "3", "X-A", "4"]);
  });

  test("a `Headers` that a hook assigns to `headers` replaces the fields of the draft", () => {
    const next = changed(sent, (draft) => (draft.headers = new Headers({ "x-c": "4" })));
    expect(next.headers).toEqual(["x-c", "4"]);
  });

  test("a plain object that untyped code assigns to `headers` is used like a `Headers`", () => {
    const fields = { "x-c": "4" } as unknown as Headers;
    const next = changed(sent, (draft) => (draft.headers = fields));
    expect(next.headers).toEqual(["x-c", "4"]);
  });

  test("a copy of the draft that is made by spread has the `headers` of the draft", () => {
    const draft = toDraft(sent);
    expect({ ...draft }.headers).toBe(draft.headers);
  });

  test("framing and hop-by-hop fields set by a hook are not sent", () => {
    const next = changed(fakeRequest(), ({ headers }) => {
      headers.set("content-length", "7");
      headers.set("transfer-encoding", "chunked");
      headers.set("connection", "close");
      headers.set("upgrade", "websocket");
      headers.set("x-kept", "1");
    });
    expect(next.headers).toEqual(["x-kept", "1"]);
    expect(next.contentLength).toBeUndefined();
  });

  test("a field `host` that a hook sets replaces Host, and is refused if it is not an authority", () => {
    expect(
      changed(fakeRequest({ host: "a" }), ({ headers }) => headers.set("host", "b")).host,
    ).toBe("b");
    expect(changed(fakeRequest({ host: "a" }), () => {}).host).toBe("a");
    const bad = (): UpstreamRequest =>
      changed(fakeRequest(), ({ headers }) => headers.set("host", "a/b"));
    expect(bad).toThrow(refused);
  });

  test("forwarding fields are kept when a hook changes the other fields", () => {
    const hop = fakeRequest({ headers: ["x-forwarded-for", "1.2.3.4", "forwarded", "for=x"] });
    expect(changed(hop, ({ headers }) => headers.delete("x")).headers).toEqual([
      "x-forwarded-for",
      "1.2.3.4",
      "forwarded",
      "for=x",
    ]);
  });

  test("Proxy-Authorization of the upstream request is kept", () => {
    const hop = fakeRequest({ headers: ["proxy-authorization", "Basic eA=="] });
    expect(changed(hop, () => {}).headers).toEqual(hop.headers);
  });
});

describe("the path of a draft", () => {
  test.each(["", "a?b", "@evil.test/", ".evil.test/", "http://evil.test/"])(
    "the path %j that a hook sets gets a slash in front, so that it reaches no other authority",
    (path) => {
      expect(changed(fakeRequest(), (draft) => (draft.path = path)).path).toBe(`/${path}`);
    },
  );

  test("`*` becomes `/*` unless the method is OPTIONS", () => {
    const asterisk = (draft: RequestDraft): string => (draft.path = "*");
    expect(changed(fakeRequest(), asterisk).path).toBe("/*");
    expect(changed(fakeRequest({ method: "OPTIONS" }), asterisk).path).toBe("*");
  });

  test.each(["/a b", "a#b", "/a\r\nb: c"])(
    "the path %j that a hook sets is refused, because an upstream could read it as another path or request",
    (path) => {
      expect(() => changed(fakeRequest(), (draft) => (draft.path = path))).toThrow(refused);
    },
  );
});

describe("the body that a hook sets", () => {
  const hop = fakeRequest({ method: "POST", body: streamOf(["old"]), contentLength: 3 });

  test("is sent as UTF-8 if it is a string", () => {
    const next = changed(hop, (draft) => (draft.body = "né"));
    expect(next).toMatchObject({ body: new BytesBody(bytes("né")), contentLength: undefined });
  });

  test("is sent unchanged, and can be sent again, if it is bytes", () => {
    const body = bytes("new");
    const next = changed(hop, (draft) => (draft.body = body));
    expect(next.body?.replay).toBe(body);
    expect(next.contentLength).toBeUndefined();
  });

  test("is measured before it is sent if it is a stream", () => {
    const body = streamOf(["new"]);
    const next = changed(hop, (draft) => (draft.body = body));
    expect(next.body).toBeInstanceOf(UnframedBody);
    expect((next.body as UnframedBody).stream()).toBe(body);
    expect(next.contentLength).toBeUndefined();
  });

  test.each([
    ["an ArrayBuffer", new ArrayBuffer(3)],
    ["a DataView", new DataView(new ArrayBuffer(3))],
    ["a Uint16Array", new Uint16Array(3)],
    ["URLSearchParams", new URLSearchParams("a=b")],
    ["a FormData", new FormData()],
    ["a Blob", new Blob(["abc"])],
    ["an object", { a: 1 }],
    ["a number", 1],
  ])("is refused with an error that names the hook and the fix if it is %s", (_, body) => {
    const change = (): unknown => changed(hop, (draft) => (draft.body = body as never));
    expect(change).toThrow(MisuseError);
    expect(change).toThrow(/`onRequest` .* must be a Uint8Array; use `await new Response\(body\)/);
  });

  test("is left out if it is null", () => {
    const next = changed(hop, (draft) => (draft.body = null));
    expect(next).toMatchObject({ body: null, contentLength: undefined });
  });
});
