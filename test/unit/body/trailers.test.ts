/** Trailer fields in the core: which are dropped, and which bodies keep the others. */
import { describe, expect, test } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { replayOf, ReplayBody } from "../../../src/body/replay.ts";
import { ResponseBody } from "../../../src/body/responsebody.ts";
import { pipe } from "../../../src/body/source.ts";
import { NameSet, type HeaderList } from "../../../src/fields/headers.ts";
import { cleanTrailerNames, cleanTrailers, namesOf } from "../../../src/fields/trailers.ts";
import { cleanResponse } from "../../../src/response/clean.ts";
import { bytes, fakeRequest, fakeResponse, fakeScope } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

/** Fields of the kinds that RFC 9110 §6.5.1 forbids in trailers. */
const FORBIDDEN: Record<string, string[]> = {
  framing: ["transfer-encoding", "content-length", "Trailer", "connection", "TE", "upgrade"],
  routing: ["Host", "via", "forwarded", "X-Forwarded-For", "x_forwarded_proto", "x-real-ip"],
  authentication: ["authorization", "proxy-authorization", "www-authenticate", "Set-Cookie"],
  "request modifiers": ["cache-control", "expect", "if-none-match", "max-forwards", "range"],
  "response control": ["age", "date", "location", "retry-after", "vary", "alt-svc"],
  "content format": ["content-type", "content-encoding", "content-range"],
};

test.each(Object.entries(FORBIDDEN))("trailer fields for %s are dropped", (_, names) => {
  for (const name of names) {
    expect(cleanTrailers([name, "1", "X-Sum", "2"]), name).toEqual(["X-Sum", "2"]);
    expect(cleanTrailers([name, "1"]), name).toBe(undefined);
    expect(cleanTrailerNames(`${name}, X-Sum`), name).toBe("X-Sum");
    expect(cleanTrailerNames(name), name).toBe(undefined);
  }
});

test("trailer fields of none of the forbidden kinds are kept, with their duplicates", () => {
  const list = [
    "Content-Digest",
    "a",
    "Server-Timing",
    "b",
    "content-digest",
    "c",
    "grpc-status",
    "0",
  ];
  expect(cleanTrailers(list)).toEqual(list);
  expect(namesOf(["X-A", "1", "X-B", "2", "X-A", "3"])).toBe("X-A, X-B");
});

test("trailer fields with a name in `dropped` or in Connection are dropped", () => {
  const list = ["X-User", "1", "x_user", "2", "X-Secret", "3", "X-Sum", "4"];
  const dropped = new NameSet(["x-user"]);
  expect(cleanTrailers(list, dropped, "keep-alive, x-secret")).toEqual(["X-Sum", "4"]);
  expect(cleanTrailerNames("x_user , X-Sum,,", dropped)).toBe("X-Sum");
});

describe("a response body", () => {
  function endWith(trailers: HeaderList, connection?: string): ResponseBody {
    const body = new ResponseBody(fakeScope(), { pause() {}, resume() {}, cancel() {} });
    const headers = connection === undefined ? [] : ["Connection", connection];
    cleanResponse(fakeResponse({ headers, body }), "GET", fakeRequest());
    body.push(bytes("hello"));
    body.end(trailers);
    return body;
  }

  test("has only allowed trailer fields, whether it is read as bytes or piped", () => {
    const list = ["X-Sum", "1", "Set-Cookie", "a=b", "X-Sum", "2"];
    const whole = endWith(list);
    expect(whole.whole()).toEqual(bytes("hello"));
    expect(whole.trailers).toEqual(["X-Sum", "1", "X-Sum", "2"]);
    const sink = new FakeSink();
    pipe(endWith(list), sink);
    expect(sink.trailers).toEqual(["X-Sum", "1", "X-Sum", "2"]);
  });

  test("drops trailer fields that the response's Connection names", () => {
    expect(endWith(["X-Sum", "1"], "x-sum").trailers).toBe(undefined);
    expect(endWith(["X-Sum", "1"], "keep-alive").trailers).toEqual(["X-Sum", "1"]);
  });

  test("announces its trailer fields in Trailer only if its length is not known", () => {
    const announced = (body: BytesBody | ResponseBody): unknown =>
      cleanResponse(
        fakeResponse({ headers: ["Trailer", "X-Sum", "trailer", "Set-Cookie"], body }),
        "GET",
        fakeRequest(),
      ).trailer;
    expect(announced(endWith([]))).toBe("X-Sum");
    expect(announced(new BytesBody(bytes("hello")))).toBe(undefined);
  });
});

test("a body that is sent again keeps its trailer fields", () => {
  const trailers = ["X-Sum", "1"];
  const body = new ReplayBody(new BytesBody(bytes("hello"), trailers), 100, undefined);
  expect(body.whole()).toEqual(bytes("hello"));
  expect(replayOf(body)?.trailers).toEqual(trailers);
  const sink = new FakeSink();
  replayOf(body)?.pipeTo(sink);
  expect(sink.trailers).toEqual(trailers);
});
