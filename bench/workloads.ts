/** The requests that are sent to every contestant, and the expected responses. */
import { crc32 } from "node:zlib";

export interface Workload {
  /** The name for `--workloads`. */
  readonly name: string;
  readonly title: string;
  readonly method: "GET" | "POST";
  readonly path: string;
  /** The request body; undefined for a request without one. */
  readonly body: Buffer | undefined;
  /** The expected response body. */
  readonly answer: Buffer;
  readonly type: string;
  /** Whether the upstream sends the response at a fixed pace. Half a round is then enough. */
  readonly paced?: true;
}

/** Creates a text of this length, the same in every run. No two lines are equal, so that swapped chunks are detected. */
function textOf(length: number): Buffer {
  const lines: string[] = [];
  for (let i = 0, total = 0; total < length; i++) {
    const line = `${i.toString().padStart(8, "0")} the quick brown fox jumps over the lazy dog\n`;
    lines.push(line);
    total += line.length;
  }
  return Buffer.from(lines.join("").slice(0, length));
}

/** Creates a JSON text of exactly 1024 bytes. */
function makeJson(): Buffer {
  const value = { id: 4711, name: "Ada Lovelace", tags: ["a", "b", "c"], text: "" };
  const room = 1024 - JSON.stringify(value).length;
  return Buffer.from(JSON.stringify({ ...value, text: "x".repeat(room) }));
}

export const KIB = 1024;
export const MIB: number = 1024 * KIB;

/** An event of the event stream. A response consists of `EVENTS` such events. */
export const EVENT: Buffer = Buffer.from(`data: ${JSON.stringify({ tick: "x".repeat(80) })}\n\n`);
export const EVENTS = 10;

/** Returns the body of the upstream's response to an upload: only the length and a checksum of the uploaded body. */
export function receiptOf(length: number, checksum: number): string {
  return `${length} ${checksum.toString(16)}`;
}

const TEXT = "text/plain; charset=utf-8";
const JSON_TYPE = "application/json";

function get(name: string, title: string, length: number): Workload {
  const answer = textOf(length);
  return { name, title, method: "GET", path: `/${name}`, body: undefined, answer, type: TEXT };
}

const json = makeJson();
const large = textOf(MIB);

export const workloads: readonly Workload[] = [
  get("get-1k", "GET 1 KB", KIB),
  {
    name: "post-1k",
    title: "POST 1 KB",
    method: "POST",
    path: "/echo",
    body: json,
    answer: json,
    type: JSON_TYPE,
  },
  get("get-64k", "GET 64 KB", 64 * KIB),
  get("get-1m", "GET 1 MB", MIB),
  {
    name: "post-1m",
    title: "POST 1 MB",
    method: "POST",
    path: "/sink",
    body: large,
    answer: Buffer.from(receiptOf(large.length, crc32(large))),
    type: TEXT,
  },
  {
    name: "sse",
    title: `SSE, ${EVENTS} events`,
    method: "GET",
    path: "/events",
    body: undefined,
    answer: Buffer.concat(Array.from({ length: EVENTS }, () => EVENT)),
    type: "text/event-stream",
    paced: true,
  },
];

/** Returns the title of a workload, whose name may end with a number of connections: `get-1k × 64`. */
export function titleOfWorkload(name: string): string {
  const [own = "", ...rest] = name.split(" ");
  const { title = own } = workloads.find((each) => each.name === own) ?? {};
  return [title, ...rest].join(" ");
}

export function workloadsOf(...names: readonly string[]): Workload[] {
  return workloads.filter(({ name }) => names.includes(name));
}
