/**
 * Interceptors that change the text or the JSON of response bodies: `fetchway/bodies`.
 *
 * Without them, the proxy passes bodies on unchanged, with their content coding.
 * @module
 */
import { BytesBody } from "./body/bytes.ts";
import {
  decodeBytes,
  findDecodable,
  MAX_CODINGS,
  narrowAcceptEncoding,
  readCodings,
} from "./body/codings.ts";
import { HeldBody } from "./body/held.ts";
import { ProxyError } from "./error.ts";
import {
  getHeader,
  isEventStream,
  NameSet,
  setHeader,
  toHeaders,
  withoutNames,
  type HeaderList,
} from "./fields/headers.ts";
import { bytes, choice, either, list as listOf, text, toggle } from "./schema/kinds.ts";
import { assertOptions, isRecord, type Kind, type Schema } from "./schema/schema.ts";
import type { UpstreamRequest, UpstreamResponse } from "./transport/message.ts";
import type { Interceptor } from "./transport/port.ts";

export type { Interceptor } from "./transport/port.ts";

/**
 * The head of the response, for a function that changes the body. Changing its fields has no effect: use `onResponse` for that.
 */
export interface ResponseHead {
  /** The status code. */
  readonly status: number;
  /** The header fields that the upstream has sent. */
  readonly headers: Headers;
}

/** The head of the request to the upstream, for a function that changes the response body. */
export interface RequestHead {
  /** The method that is sent to the upstream. */
  readonly method: string;
  /** The path and query that are sent to the upstream. */
  readonly path: string;
  /** The header fields that are sent to the upstream. */
  readonly headers: Headers;
}

/**
 * Returns the new body, or undefined to leave the response unchanged, with its content coding and its fields.
 * @typeParam Body a string, or what `JSON.parse` returns
 */
export type ChangeBody<Body> = (
  body: Body,
  response: ResponseHead,
  request: RequestHead,
) => Body | undefined | Promise<Body | undefined>;

/** Options of `transformText` and `transformJson`. */
export interface TransformOptions {
  /**
   * The media types of the responses to change; `*` matches any characters. Other responses pass unchanged, and so do event
   * streams and partial responses (206).
   * @default text/* , JSON, XML and JavaScript for `transformText`; JSON for `transformJson`
   * @example ["text/html"]
   */
  types?: readonly string[];
  /**
   * Maximum bytes of a body: as it arrives, and after each of its content codings is undone. While the proxy changes a body,
   * it holds the body in memory: encoded, decoded, and as text.
   * @default 1048576
   */
  maxBytes?: number;
  /**
   * What to do with a longer body: `"refuse"` responds with 502, and `"pass"` passes it on unchanged.
   * @default "refuse"
   */
  tooLarge?: "refuse" | "pass";
  /**
   * What to do with a body that cannot be read: `"refuse"` responds with 502, and `"pass"` passes it on unchanged. A body
   * cannot be read if the runtime cannot undo its content coding, if it has more than 5 content codings, if it is not in its
   * charset (UTF-8 unless `Content-Type` names another one), or, with `transformJson`, if it is not JSON.
   * @default "refuse"
   */
  unreadable?: "refuse" | "pass";
  /**
   * Whether requests for a part (`Range`) reach the upstream. The parts pass unchanged, so they do not match a body that was
   * changed. `false` drops `Range`, and the client gets the whole body.
   * @default false
   */
  ranges?: boolean;
}

const reactionKind: Kind<"refuse" | "pass"> = either(
  'use "refuse" or "pass"',
  choice("refuse", "pass"),
);

const transformSchema: Schema<TransformOptions> = {
  types: { kind: listOf(text(/^/), 'use an array of media types, such as ["text/html"]') },
  maxBytes: { kind: bytes },
  tooLarge: { kind: reactionKind },
  unreadable: { kind: reactionKind },
  ranges: { kind: toggle },
};

const JSON_TYPES = ["application/json", "application/*+json"];
const TEXT_TYPES = [
  ...JSON_TYPES,
  "text/*",
  "application/javascript",
  "application/xml",
  "application/*+xml",
  "image/svg+xml",
];

/**
 * Returns an interceptor that changes the text of responses. The function gets the decoded text; the client gets the new
 * text in UTF-8 without a content coding, with its own `Content-Length`. A strong `ETag` becomes weak.
 *
 * The request asks the upstream only for content codings that the runtime can undo. A response is collected before it is
 * changed, up to `maxBytes`.
 * @param change returns the new text, or undefined to leave the response unchanged
 * @throws TypeError that names a bad option and the fix
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { transformText } from "fetchway/bodies";
 *
 * const banner = transformText((html) => html.replace("<body>", "<body><p>Preview</p>"), {
 *   types: ["text/html"],
 * });
 * export default createProxy({ target: "http://127.0.0.1:4000", interceptors: { request: [banner] } });
 * ```
 */
export function transformText(
  change: ChangeBody<string>,
  options: TransformOptions = {},
): Interceptor {
  checkTransform("transformText", change, options);
  return transform(change, compileTransform(options, TEXT_TYPES));
}

/**
 * Returns an interceptor that changes the JSON of responses, as `transformText` does with text. A number that JavaScript
 * cannot represent exactly changes, such as a whole number above 2^53.
 * @param change returns the new value, or undefined to leave the response unchanged
 * @throws TypeError that names a bad option and the fix
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { transformJson } from "fetchway/bodies";
 *
 * const hide = transformJson<{ email?: string }>(({ email: _, ...user }) => user);
 * export default createProxy({ target: "http://127.0.0.1:4000", interceptors: { request: [hide] } });
 * ```
 */
export function transformJson<Value = unknown>(
  change: ChangeBody<Value>,
  options: TransformOptions = {},
): Interceptor {
  checkTransform("transformJson", change, options);
  const changeText: ChangeBody<string> = async (source, response, request) => {
    let value: Value;
    try {
      value = JSON.parse(source) as Value;
    } catch (thrown) {
      throw new UnreadableError("is not JSON", { cause: thrown });
    }
    const changed = await change(value, response, request);
    if (changed === undefined) return undefined;
    const json = JSON.stringify(changed) as string | undefined;
    if (json !== undefined) return json;
    throw new TypeError(
      "fetchway: the function of transformJson must return a value that JSON can represent, or undefined",
    );
  };
  return transform(changeText, compileTransform(options, JSON_TYPES));
}

/** The options of a transformation, with the defaults filled in. */
interface Transform extends Required<Omit<TransformOptions, "types">> {
  /** Matches the media types of the responses to change. */
  readonly typePattern: RegExp;
}

/** @throws TypeError that names the option and the fix */
function checkTransform(name: string, change: unknown, options: unknown): void {
  if (typeof change !== "function") {
    throw new TypeError(`fetchway: ${name} needs a function, such as ${name}((body) => body)`);
  }
  if (!isRecord(options)) {
    throw new TypeError(`fetchway: the options of ${name} must be an object`);
  }
  assertOptions(options, transformSchema);
}

function compileTransform(options: TransformOptions, usualTypes: readonly string[]): Transform {
  const { types = usualTypes, maxBytes = 1_048_576, ranges = false } = options;
  const { tooLarge = "refuse", unreadable = "refuse" } = options;
  const patterns = types.map((type) =>
    type
      .toLowerCase()
      .replaceAll(/[^\w*/]/g, String.raw`\$&`)
      .replaceAll("*", "[^;, ]*"),
  );
  const typePattern = new RegExp(`^(?:${patterns.join("|")})$`);
  return { typePattern, maxBytes, tooLarge, unreadable, ranges };
}

/**
 * The reason why a body cannot be read. Its message is the end of a sentence that begins with "the response body", like
 * the parameter `what` of `settleChange`.
 */
class UnreadableError extends Error {}

function transform(change: ChangeBody<string>, options: Transform): Interceptor {
  return (next) => async (original, scope) => {
    if (original.upgrade !== undefined) return next(original, scope);
    const decodable = await findDecodable();
    const request = narrowRequest(original, options.ranges, decodable);
    const response = await next(request, scope);
    if (response.status === 304) return weakenRevalidated(response, request);
    if (!isChangeable(response, options.typePattern)) return response;
    if (request.method === "HEAD") {
      return { ...response, headers: dropDescriptions(response.headers) };
    }
    if (response.body === null) return response;
    return changeResponse(change, options, decodable, request, response, response.body);
  };
}

const RANGES = new NameSet(["if-range", "range"]);
const ACCEPT_ENCODING = new NameSet(["accept-encoding"]);

/**
 * Returns the request with an `Accept-Encoding` of codings that the runtime can undo, and without `Range` unless `ranges` is
 * true.
 */
function narrowRequest(
  request: UpstreamRequest,
  ranges: boolean,
  decodable: ReadonlySet<string>,
): UpstreamRequest {
  const { headers, headersBeforeHooks } = request;
  const narrow = (list: HeaderList): HeaderList => {
    const accepted = valuesOf(list, "accept-encoding");
    const kept = withoutNames(ranges ? list : withoutNames(list, RANGES), ACCEPT_ENCODING);
    return [...kept, "Accept-Encoding", narrowAcceptEncoding(accepted, decodable)];
  };
  if (headersBeforeHooks === undefined) return { ...request, headers: narrow(headers) };
  // A field that is not the same in `headersBeforeHooks` would count as set by the app, and would be dropped at a
  // redirect to another origin.
  return { ...request, headers: narrow(headers), headersBeforeHooks: narrow(headersBeforeHooks) };
}

/** Joins the values of all fields with this name; returns undefined if there is no such field. */
function valuesOf(list: HeaderList, lower: string): string | undefined {
  const values = list.filter((_, i) => i % 2 === 1 && list[i - 1]?.toLowerCase() === lower);
  return values.length === 0 ? undefined : values.join(", ");
}

/**
 * Whether a response may be changed: its status means that it has a body, and not only a part of one (206), and its media type
 * matches `typePattern`. Event streams are never changed.
 */
function isChangeable({ status, headers }: UpstreamResponse, typePattern: RegExp): boolean {
  const isWhole = status >= 200 && status !== 204 && status !== 205 && status !== 206;
  const type = getHeader(headers, "content-type")?.split(";", 1)[0]?.trim().toLowerCase();
  return isWhole && type !== undefined && typePattern.test(type) && !isEventStream(headers);
}

/** The fields that describe the bytes of the original body, or its framing. */
const DESCRIPTIONS = new NameSet([
  "accept-ranges",
  "content-digest",
  "content-encoding",
  "content-length",
  "content-md5",
  "digest",
  "repr-digest",
  "trailer",
  "transfer-encoding",
]);

/** Returns the fields for a changed body: without those that describe the original body, and with a weak `ETag`. */
function dropDescriptions(headers: HeaderList): HeaderList {
  return weakenEtag(withoutNames(headers, DESCRIPTIONS));
}

/** Makes a strong `ETag` weak: the changed body is equivalent to the original one, but not the same (RFC 9110 §8.8.1). */
function weakenEtag(headers: HeaderList): HeaderList {
  const etag = getHeader(headers, "etag");
  return etag?.startsWith('"') === true ? setHeader(headers, "ETag", `W/${etag}`) : headers;
}

/**
 * Makes the `ETag` of a 304 weak if the client's `If-None-Match` contains its weak form, which the client got with a
 * changed body. A 304 has no `Content-Type` that would show whether the client's body was changed.
 */
function weakenRevalidated(
  response: UpstreamResponse,
  { headers }: UpstreamRequest,
): UpstreamResponse {
  const etag = getHeader(response.headers, "etag") ?? "";
  const condition = valuesOf(headers, "if-none-match") ?? "";
  if (etag === "" || !condition.includes(`W/${etag}`)) return response;
  return { ...response, headers: weakenEtag(response.headers) };
}

/** Collects the body of a response, changes it, and returns the response with the new body. */
async function changeResponse(
  change: ChangeBody<string>,
  options: Transform,
  decodable: ReadonlySet<string>,
  request: UpstreamRequest,
  response: UpstreamResponse,
  body: NonNullable<UpstreamResponse["body"]>,
): Promise<UpstreamResponse> {
  const { headers } = response;
  const { maxBytes } = options;
  const encoding = valuesOf(headers, "content-encoding") ?? "";
  const codings = isDecodedByRuntime(response, encoding) ? [] : readCodings(encoding);
  if (codings.length > MAX_CODINGS) {
    return settleChange(
      options.unreadable,
      response,
      `has more than ${MAX_CODINGS} content codings`,
    );
  }
  if (!codings.every((coding) => decodable.has(coding))) {
    return settleChange(options.unreadable, response, `has the content coding ${encoding}`);
  }
  const tooLarge = `is longer than ${maxBytes} bytes (maxBytes)`;
  if ((body.length ?? 0) > maxBytes) return settleChange(options.tooLarge, response, tooLarge);

  // The trailer fields of an unchanged body are passed on as a list, from which nothing is dropped later.
  body.restrictTrailers?.(undefined, valuesOf(headers, "connection"));
  const held = new HeldBody(body, maxBytes);
  const collected = await collectOrFail(held);
  if (collected === undefined) {
    return settleChange(options.tooLarge, { ...response, body: held }, tooLarge);
  }
  const unchanged: UpstreamResponse = {
    ...response,
    body: new BytesBody(collected, body.trailers),
  };
  let changed: string | undefined;
  try {
    const decoded = await decodeOrFail(collected, codings, maxBytes);
    if (decoded === undefined) return settleChange(options.tooLarge, unchanged, tooLarge);
    const source = readText(decoded, getHeader(headers, "content-type"));
    const head: ResponseHead = { status: response.status, headers: toHeaders(headers) };
    const { method, path } = request;
    changed = await change(source, head, { method, path, headers: toHeaders(request.headers) });
  } catch (thrown) {
    if (!(thrown instanceof UnreadableError)) throw thrown;
    return settleChange(options.unreadable, unchanged, thrown.message, thrown.cause);
  }
  if (changed === undefined) return unchanged;
  if (typeof changed !== "string") {
    throw new TypeError(
      "fetchway: the function of transformText must return a string, or undefined",
    );
  }
  const bytesOfText = new TextEncoder().encode(changed);
  const described = toUtf8(dropDescriptions(headers));
  described.push("Content-Length", String(bytesOfText.byteLength));
  // Drop the hint `isEncoded`: without a content coding, the runtime has nothing to encode.
  const { trailer: _, hints, ...rest } = response;
  return {
    ...rest,
    headers: described,
    body: new BytesBody(bytesOfText),
    ...(hints?.fields && { hints: { fields: hints.fields } }),
  };
}

/**
 * Whether the runtime undoes the content coding when JavaScript reads the body. workerd does so for the codings gzip and
 * br, except where `hints.isEncoded` says that JavaScript reads the encoded bytes. Only workerd's responses have hints.
 */
function isDecodedByRuntime({ hints }: UpstreamResponse, encoding: string): boolean {
  return hints?.isEncoded === false && /^(?:gzip|br)$/.test(encoding);
}

/**
 * Passes on or refuses a response that cannot be changed.
 * @param reaction the value of the option that decides which of the two
 * @param what the end of a sentence that begins with "the response body"
 */
function settleChange(
  reaction: "refuse" | "pass",
  response: UpstreamResponse,
  what: string,
  cause?: unknown,
): UpstreamResponse {
  if (reaction === "pass") return response;
  response.body?.cancel();
  throw new ProxyError("http_protocol_error", {
    message: `the response body ${what}, so it cannot be changed`,
    ...(cause === undefined ? {} : { cause }),
  });
}

/** @throws ProxyError for a body that fails before its end */
async function collectOrFail(held: HeldBody): Promise<Uint8Array | undefined> {
  try {
    return await held.collect();
  } catch (thrown) {
    if (thrown instanceof ProxyError) throw thrown;
    throw new ProxyError("http_response_incomplete", { cause: thrown });
  }
}

/** @throws UnreadableError for bytes that are not in the codings */
async function decodeOrFail(
  encoded: Uint8Array,
  codings: readonly string[],
  maxBytes: number,
): Promise<Uint8Array | undefined> {
  try {
    return await decodeBytes(encoded, codings, maxBytes);
  } catch (thrown) {
    throw new UnreadableError(`is not in the coding ${codings.join(", ")}`, { cause: thrown });
  }
}

const CHARSET = /;[\t ]*charset="?([^\s";]+)"?/i;

/** @throws UnreadableError for bytes that are not in the charset */
function readText(decoded: Uint8Array, type = ""): string {
  const charset = CHARSET.exec(type)?.[1] ?? "utf-8";
  try {
    return new TextDecoder(charset, { fatal: true }).decode(decoded);
  } catch (thrown) {
    throw new UnreadableError(`is not in the charset ${charset}`, { cause: thrown });
  }
}

/** Returns the fields with the charset UTF-8 in `Content-Type`, if `Content-Type` names another charset. */
function toUtf8(headers: HeaderList): HeaderList {
  const type = getHeader(headers, "content-type") ?? "";
  const charset = CHARSET.exec(type)?.[1]?.toLowerCase() ?? "utf-8";
  if (charset === "utf-8") return headers;
  return setHeader(headers, "Content-Type", type.replace(CHARSET, "; charset=utf-8"));
}
