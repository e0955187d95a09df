/** `fetchway replay`: sends recorded requests again, and compares the responses. */
import process from "node:process";
import { createTransport, proxyFetch, type RequestEnd } from "#fetchway";
import { quoteInput } from "#fetchway/options";
import { pathOf, TOKEN } from "#fetchway/requests";
import { BytesBody, type HeaderList, type Interceptor, type Transport } from "#fetchway/transport";
import { UsageError } from "../flags/read.ts";
import { printWarning } from "../log/ownmessages.ts";
import { REDACTED } from "../log/redact.ts";
import { type CapturedAttempt, captureAttempts } from "../record/capture.ts";
import { type HarEntry, STILL_CODED, toEntry } from "../record/harentry.ts";
import { readHar } from "../record/harfile.ts";
import { compareResponses, IGNORED, isComparable, originOf } from "./compare.ts";
import {
  isFieldValue,
  OF_TRANSPORT,
  readReplayLine,
  REPLAY_HELP,
  type ReplayLine,
} from "./replayline.ts";
import { renderReplay, type ReplayOutcome, type ReplayResult } from "./replayreport.ts";

/** The maximum number of bytes of a response body that are kept for the comparison. */
const MAX_BODY = 16 * 1_048_576;

/**
 * Runs `fetchway replay`, prints the report, and ends the process.
 * @throws UsageError for a wrong command line, or a file that cannot be used
 */
export async function runReplay(args: readonly string[]): Promise<void> {
  const line = readReplayLine(args);
  if (line === "help") return console.log(REPLAY_HELP);
  const outcome = await replay(line);
  const { equal, different, failed } = outcome.counts;
  const code = different + failed > 0 ? 1 : equal > 0 ? 0 : 2;
  const text = line.asJson ? JSON.stringify(outcome, undefined, 2) : renderReplay(outcome);
  process.stdout.write(`${text}\n`, () => process.exit(code));
}

async function replay(line: ReplayLine): Promise<ReplayOutcome> {
  const { entries, isCut } = readHar(line.file);
  if (isCut) {
    printWarning(`${quoteInput(line.file)} breaks off: it has ${entries.length} complete requests`);
  }
  const chosen = chooseEntries(entries, line);
  const transport = createTransport();
  const ignored = new Set([...IGNORED, ...line.ignored]);
  const leftOut: Record<string, number> = {};
  const results: ReplayResult[] = [];
  const start = performance.now();
  const first = Date.parse(chosen[0]?.startedDateTime ?? "");
  const waiting = chosen.entries();
  const work = async (): Promise<void> => {
    for (const [index, entry] of waiting) {
      const due = line.isPaced ? start + Date.parse(entry.startedDateTime) - first : 0;
      const wait = due - performance.now();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      results[index] = await replayEntry(entry, line, transport, ignored, leftOut);
    }
  };
  await Promise.all(Array.from({ length: line.concurrency }, work));
  await transport.close?.();
  const { origin, socketPath, basePath } = line.target;
  const against = (socketPath === undefined ? origin : `unix:${socketPath}`) + basePath;
  const counts = { equal: 0, different: 0, failed: 0, "not sent": 0 };
  for (const { result } of results) counts[result]++;
  return { file: line.file, against, counts, ignored: [...ignored].toSorted(), leftOut, results };
}

/**
 * Returns the entries of requests to the origins of `--from`, or all entries without `--from`.
 * @throws UsageError if the file has no request to one of these origins, or has several origins and `--from` is not given
 */
function chooseEntries(entries: readonly HarEntry[], { from, file }: ReplayLine): HarEntry[] {
  const groups = Map.groupBy(entries, ({ request }) => originOf(request.url));
  const origins = Array.from(groups, ([origin, group]) => `${origin} (${group.length})`);
  const wrong = from?.find((origin) => !groups.has(origin));
  if (wrong !== undefined || (from === undefined && groups.size > 1)) {
    const what =
      wrong === undefined ? "requests to several origins" : `no requests to ${quoteInput(wrong)}`;
    throw new UsageError(
      `${quoteInput(file)} has ${what}; choose with --from: ${origins.join(", ")}`,
    );
  }
  return entries.filter(({ request }) => from?.includes(originOf(request.url)) ?? true);
}

/** The parts of a recorded request that are sent again. */
interface Replayed {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderList;
  readonly host: string | undefined;
  readonly body: BytesBody | null;
}

async function replayEntry(
  entry: HarEntry,
  line: ReplayLine,
  transport: Transport,
  ignored: ReadonlySet<string>,
  leftOut: Record<string, number>,
): Promise<ReplayResult> {
  const { request, response } = entry;
  const [recordedPath = ""] = pathOf(request.url).split("#", 1);
  const path = fillQuery(recordedPath, line.query);
  const named = { method: request.method, path: recordedPath };
  const reason = findObstacle(entry, path, line);
  if (reason !== undefined) return { ...named, result: "not sent", reason };
  const { headers, host } = readFields(request, line.fields, leftOut);
  const { postData } = request;
  const encoding = (postData?._encoding ?? "utf8") as BufferEncoding;
  const body = postData?.text ? new BytesBody(Buffer.from(postData.text, encoding)) : null;
  const sent = { ...named, path: line.target.basePath + path, headers, host, body };
  const isWanted = isComparable(response.content);
  const hasDigest = response.content._sha256 !== undefined;
  const limit = AbortSignal.timeout(line.timeout);
  const maxBody = hasDigest ? 0 : MAX_BODY;
  const [attempt, end] = await send(sent, line.target, transport, limit, isWanted, maxBody);
  const settings = { maxBody, secrets: false };
  const replayed = await toEntry(attempt, end, true, settings);
  const times = { recordedMs: entry.time, replayedMs: replayed.time };
  const { _error: failure } = replayed.response;
  if (failure !== undefined && (isWanted || replayed.response.status === 0)) {
    const late = `no complete response within ${line.timeout} ms (--timeout)`;
    return { ...named, result: "failed", reason: limit.aborted ? late : failure, ...times };
  }
  const differences = compareResponses(entry, replayed, ignored);
  return {
    ...named,
    result: differences.length === 0 ? "equal" : "different",
    ...(differences.length > 0 && { differences }),
    ...(!isWanted && { isBodyUnknown: true }),
    ...times,
  };
}

/** Replaces redacted parameters with the values of `--query`. */
function fillQuery(path: string, query: ReplayLine["query"]): string {
  return path.replace(/([?&;])([^?&;=]+)=REDACTED(?=[&;]|$)/g, (all, separator, name: string) => {
    const value = query.get(name);
    return value === undefined ? all : `${separator}${name}=${value}`;
  });
}

/** Returns the reason why a request must not be sent; undefined if it may be sent. */
function findObstacle(
  { request, response, _resourceType: type }: HarEntry,
  path: string,
  { methods }: ReplayLine,
): string | undefined {
  const { method, url, headers, postData, bodySize } = request;
  if (response.status === 101 || type === "websocket") return "it is an upgrade";
  if (response.status === 0) return "it has no recorded response";
  if (!/^https?:/.test(url) || !/^\/[!-~]*$/.test(path) || !TOKEN.test(method)) {
    return "its URL or its method is malformed";
  }
  if (method === "OPTIONS" && url === originOf(url))
    return "it is about the server as a whole (OPTIONS *)";
  if (!methods.includes(method)) {
    return `its method may change the state of the target; --methods ${method} allows it`;
  }
  if (headers.some(({ name, value }) => !isSendable(name, value))) return "a field is malformed";
  if (path.includes(`=${REDACTED}`)) return "its query is redacted; --query sets the values";
  if (postData?._truncated === true) return "the recording has only the beginning of its body";
  const isMissing = postData?.text === undefined && bodySize > 0;
  return isMissing ? "its body is not recorded" : undefined;
}

function isSendable(name: string, value: string): boolean {
  return name.startsWith(":") || (TOKEN.test(name) && isFieldValue(value));
}

/**
 * Returns the fields to send; `host` only if `--header` gives one, and `Content-Encoding` only if the recorded body has these
 * codings. Counts in `leftOut` the fields with redacted values.
 */
function readFields(
  recorded: HarEntry["request"],
  given: ReplayLine["fields"],
  leftOut: Record<string, number>,
): Pick<Replayed, "headers" | "host"> {
  const headers: HeaderList = [];
  const { postData } = recorded;
  const isDecoded = postData !== undefined && postData.comment?.includes(STILL_CODED) !== true;
  for (const { name, value } of recorded.headers) {
    const lower = name.toLowerCase();
    if (given.has(lower) || lower === "host" || OF_TRANSPORT.test(lower)) continue;
    if (isDecoded && lower === "content-encoding") continue;
    if (value.includes(REDACTED)) leftOut[lower] = (leftOut[lower] ?? 0) + 1;
    else headers.push(name, value);
  }
  for (const [lower, [name, value]] of given) {
    if (value !== null && lower !== "host") headers.push(name, value);
  }
  return { headers, host: given.get("host")?.[1] ?? undefined };
}

/**
 * Sends a request unchanged: an interceptor replaces the request of the proxy with `sent`. This happens before the first
 * attempt, because the method and the body decide whether there may be a second one.
 * @param isRead whether the body of the response is read
 * @returns the last attempt, and the report on the exchange
 */
async function send(
  sent: Replayed,
  target: ReplayLine["target"],
  transport: Transport,
  signal: AbortSignal,
  isRead: boolean,
  maxBody: number,
): Promise<[CapturedAttempt, RequestEnd]> {
  const attempts: CapturedAttempt[] = [];
  const replace: Interceptor = (next) => (request, scope) =>
    next({ ...request, ...sent, contentLength: sent.body?.length, upstream: target }, scope);
  const { promise: ended, resolve: onRequestEnd } = Promise.withResolvers<RequestEnd>();
  const response = await proxyFetch(new Request("http://replay.invalid/"), target.origin, {
    transport,
    signal,
    timeout: 0,
    idleTimeout: 0,
    locationRewrite: false,
    interceptors: {
      request: [replace],
      attempt: [captureAttempts(false, maxBody, () => attempts)],
    },
    onRequestEnd,
  });
  if (isRead) await response.arrayBuffer().catch(() => {});
  else await response.body?.cancel();
  return [attempts.at(-1) as CapturedAttempt, await ended];
}
