/** The client of a storm, which carries out the plan of a session. */
import type { Client, ResponseHead } from "../helpers/client.ts";
import { pause, within } from "../helpers/wait.ts";
import { locate, waitFor, writeCut } from "./message.ts";
import type { Leave, Session } from "./plan.ts";
import type { Outcome, Record } from "./record.ts";

/** The part of the storm that a session uses. */
export interface Tools {
  connect(): Promise<Client>;
  /** Whether the upstream has just closed idle connections. */
  mayBeStale(): boolean;
  /** Whether the server keeps the connection after a request with a body. */
  keepsAfterUpload: boolean;
}

/** The time limit of a response body in milliseconds. */
const LIMIT = 8000;

export async function runSession(plan: Session, records: Record[], tools: Tools): Promise<void> {
  const run = plan.pipelined ? runPipelined : runInTurn;
  const client = await run(plan, records, tools);
  if (client === undefined) return;
  if (plan.farewell === "half" && plan.leave === undefined) {
    client.finish();
    const rest = await client.rest().catch(() => "the connection stays open");
    if (rest.length > 0) {
      records
        .at(-1)
        ?.fault("bytes", `after the last response: ${JSON.stringify(rest.toString("latin1"))}`);
    }
  }
  client.leave(plan.farewell === "RST" ? "RST" : "FIN");
}

/**
 * Makes the exchanges in sequence.
 * @returns the connection if it is still usable
 */
async function runInTurn(
  { leave }: Session,
  records: Record[],
  tools: Tools,
): Promise<Client | undefined> {
  let client: Client | undefined;
  for (const [index, record] of records.entries()) {
    const isNew = client === undefined;
    client ??= await tools.connect();
    const { socket } = client;
    const { plan, request } = record;
    const leaving = leave?.exchange === index ? leave : undefined;
    if (leaving?.phase === "request") {
      await writeCut(socket, request, plan.request.cuts, locate(leaving.at, request));
      await goAway(client, leaving);
      record.end("left", 0, false);
      return undefined;
    }
    const sending = writeCut(socket, request, plan.request.cuts, request.bytes.length, () => {
      record.sent = true;
    });
    const isKept = await receive(client, record, tools, leaving, sending);
    await sending;
    if (isKept && record.outcome === "whole" && !mayClose(record, tools)) continue;
    if (!isNew && record.outcome === "closed" && !record.broken) {
      record.fault("success", "the connection was closed without Connection: close");
    }
    client.leave("FIN");
    client = undefined;
  }
  return client;
}

function mayClose({ plan }: Record, tools: Tools): boolean {
  return plan.early || (plan.request.framing !== "none" && !tools.keepsAfterUpload);
}

/** Sends all requests without waiting for responses, and then reads the responses in the same order. */
async function runPipelined(
  { leave }: Session,
  records: Record[],
  tools: Tools,
): Promise<Client | undefined> {
  const client = await tools.connect();
  const sendAll = async (): Promise<void> => {
    for (const [index, { plan, request }] of records.entries()) {
      const isLast = leave?.phase === "request" && leave.exchange === index;
      const end = isLast ? locate(leave.at, request) : request.bytes.length;
      await writeCut(client.socket, request, plan.request.cuts, end, () => {
        if (!isLast) (records[index] as Record).sent = true;
      });
      if (isLast) return;
    }
  };
  if (leave?.phase === "request") {
    await sendAll();
    await goAway(client, leave);
    for (const record of records) record.end("left", 0, false);
    return undefined;
  }
  const sending = sendAll();
  let isKept = true;
  for (const [index, record] of records.entries()) {
    if (!isKept) {
      // Requests behind the last response of a connection are not answered.
      record.end("left", 0, false);
      continue;
    }
    const leaving = leave?.exchange === index ? leave : undefined;
    isKept = await receive(client, record, tools, leaving, sending);
  }
  await sending;
  if (isKept) return client;
  client.leave("FIN");
  return undefined;
}

async function goAway(client: Client, { wait, how }: Leave): Promise<void> {
  await waitFor(wait);
  client.leave(how);
}

/**
 * Reads the response of an exchange.
 * @returns whether the connection is still usable
 */
async function receive(
  client: Client,
  record: Record,
  tools: Tools,
  leave: Leave | undefined,
  sending: Promise<void>,
): Promise<boolean> {
  const seen = { length: 0 };
  try {
    if (leave?.phase === "answer") {
      await sending;
      await goAway(client, leave);
      record.end("left", 0, false);
      return false;
    }
    const head = await client.readHead();
    const outcome = await within(readBody(client, record, head, leave, seen), "the body", LIMIT);
    record.end(outcome, seen.length, tools.mayBeStale());
    const isLast = head.get("connection")?.toLowerCase() === "close" || head.version === "1.0";
    return (
      !isLast && record.plan.version === "1.1" && (outcome === "whole" || outcome === "gateway")
    );
  } catch (error) {
    const { message } = error as Error;
    if (!message.startsWith("connection closed"))
      record.fault(message.includes("not within") ? "end" : "bytes", message);
    record.end("closed", seen.length, tools.mayBeStale());
    return false;
  }
}

async function readBody(
  client: Client,
  record: Record,
  head: ResponseHead,
  leave: Leave | undefined,
  seen: { length: number },
): Promise<Outcome> {
  const { plan, response } = record;
  const isUpstreams = record.checkHead(head);
  const leaveAt = leave && Math.floor((leave.at.by * response.body.length) / 1000);
  const rests = [...plan.rests];
  const pieces = client.pieces(head, plan.method);
  for (;;) {
    if (leave !== undefined && seen.length >= (leaveAt ?? 0)) {
      await goAway(client, leave);
      return "left";
    }
    const next = await pieces.next();
    if (next.done) {
      if (next.value.cut || isReset(client, head, plan.method)) return "cut";
      return isUpstreams ? "whole" : "gateway";
    }
    if (!isUpstreams) continue;
    record.checkPiece(next.value, seen.length);
    seen.length += next.value.length;
    while (rests[0] !== undefined && rests[0].at <= seen.length)
      await pause(rests.shift()?.ms ?? 0);
  }
}

/** Whether a reset has truncated a body that only the end of the connection delimits. */
function isReset({ socket }: Client, head: ResponseHead, method: string): boolean {
  const isBodyless = method === "HEAD" || head.status === 204 || head.status === 304;
  const isFramed = head.get("content-length") ?? head.get("transfer-encoding");
  return !isBodyless && isFramed === undefined && Boolean(socket.errored);
}
