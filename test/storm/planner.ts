/** Creates the plans of sessions from a seed. */
import { Dice } from "./dice.ts";
import type { Feature } from "./limits.ts";
import {
  type Ending,
  type Exchange,
  IDS_PER_SESSION,
  INTRUSIONS,
  type Leave,
  type Message,
  type Place,
  type Session,
  type Wait,
} from "./plan.ts";

const EDGES = [1023, 1024, 4095, 4096, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 131_072];

/** Picks a size from nothing to some megabytes. Most sizes are small. */
function pickSize(dice: Dice): number {
  const roll = dice.below(1000);
  if (roll < 120) return 0;
  if (roll < 620) return dice.between(1, 200);
  if (roll < 870) return dice.between(1, 8192);
  if (roll < 940) return dice.pick(EDGES);
  if (roll < 985) return dice.between(1, 100_000);
  return dice.between(1, roll < 997 ? 400_000 : 3_000_000);
}

function pickWait(dice: Dice): Wait {
  return dice.chance(12) ? { turns: 0, ms: dice.between(1, 8) } : { turns: dice.below(4), ms: 0 };
}

function pickPlace(dice: Dice): Place {
  const edge = dice.pick(["start", "head", "end", "any", "any"] as const);
  return { edge, by: edge === "any" ? dice.below(1000) : dice.below(edge === "start" ? 20 : 8) };
}

function pickMessage(dice: Dice, framing: Message["framing"]): Message {
  const size = framing === "none" ? 0 : pickSize(dice);
  const count = dice.chance(60) ? 0 : dice.between(1, dice.chance(30) ? 5 : 1);
  return {
    size,
    framing,
    // At most about 100 chunks for each body: thousands would only take more time.
    chunk: Math.max(dice.pick([0, 0, 1, 16, 700, 4096, 16_384, 70_000]), Math.ceil(size / 100)),
    pad: dice.chance(20) ? dice.between(1, dice.chance(10) ? 6000 : 300) : 0,
    cuts: Array.from({ length: count }, () => ({ at: pickPlace(dice), wait: pickWait(dice) })),
  };
}

function pickEnding(dice: Dice, framing: Message["framing"]): Ending {
  if (dice.chance(88)) {
    const after = dice.pick(["keep", "keep", "keep", "keep", "keep", "close", "fin", "late fin"]);
    return { kind: "whole", after: after as "keep" };
  }
  return {
    kind: "cut",
    at: pickPlace(dice),
    // If the connection's end ends the body, only a reset shows that the body is truncated.
    how: framing === "close" ? "RST" : dice.pick(["FIN", "RST"]),
    wait: pickWait(dice),
    again: dice.chance(50),
  };
}

/** Whether the host cannot detect that a response with this framing has broken off, or cannot show it to the client. */
function missesEnd(version: "1.1" | "1.0", framing: Message["framing"], can: Abilities): boolean {
  // An HTTP/1.0 client learns the end of a body without a length only from the end of the connection.
  if (version === "1.1" || framing === "sized") return false;
  return !can.has("a body that breaks off for an HTTP/1.0 client");
}

const METHODS = ["GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PATCH", "DELETE"] as const;

/** The features that a host and its variant support. */
export interface Abilities {
  has(feature: Feature): boolean;
  intrusions: boolean;
}

function pickExchange(dice: Dice, id: number, version: "1.1" | "1.0", can: Abilities): Exchange {
  const method = dice.pick(METHODS);
  const sends = method !== "GET" && method !== "HEAD" && !dice.chance(method === "DELETE" ? 60 : 8);
  const uploads = version === "1.0" ? (["sized"] as const) : (["sized", "chunked"] as const);
  const request = pickMessage(dice, sends ? dice.pick(uploads) : "none");
  if (request.framing === "chunked" && !can.has("a last chunk without its line end")) {
    for (const cut of request.cuts) cut.at = beforeLastLine(cut.at);
  }
  const status = dice.pick([200, 200, 200, 200, 200, 201, 206, 404, 500, 204, 304]);
  const bodyless = status === 204 || status === 304;
  const framings = ["sized", "sized", "sized", "chunked", "chunked", "close"] as const;
  const response = pickMessage(dice, bodyless ? "none" : dice.pick(framings));
  const planned = pickEnding(dice, response.framing);
  const isMissed = planned.kind === "cut" && missesEnd(version, response.framing, can);
  const ending: Ending = isMissed ? { kind: "whole", after: "keep" } : planned;
  if (ending.kind === "whole" && ending.after.endsWith("fin") && !can.has("stale connections")) {
    ending.after = "close";
  }
  const mayBeEarly =
    can.has("early answers") && (version === "1.1" || can.has("early answers to HTTP/1.0"));
  const early = sends && dice.chance(10) && mayBeEarly;
  const delay = dice.chance(15) ? pickWait(dice) : { turns: 0, ms: 0 };
  // RFC 9112 §6.1: an HTTP/1.0 upstream cannot send chunks.
  const old = { sized: 3, close: 30, none: 3, chunked: 0 }[response.framing];
  const count = dice.chance(8) && response.size > 0 ? dice.between(1, 3) : 0;
  return {
    id,
    method,
    version,
    request,
    status,
    response,
    upstreamVersion: dice.chance(old) ? "1.0" : "1.1",
    hints: dice.chance(2) && can.has("interim responses"),
    early,
    delay,
    deaf: dice.chance(request.size > 10_000 ? 20 : 1) ? dice.between(1, 12) : 0,
    ending,
    rests: Array.from({ length: count }, () => ({
      at: dice.below(response.size),
      ms: dice.between(1, 12),
    })).toSorted((a, b) => a.at - b.at),
    ...(can.intrusions && dice.chance(35) && { intrusion: dice.pick(INTRUSIONS) }),
  };
}

function pickLeave(dice: Dice, exchanges: Exchange[], pipelined: boolean): Leave {
  const last = exchanges.length - 1;
  return {
    exchange: pipelined ? dice.below(exchanges.length) : last,
    phase: dice.pick(["request", "answer", "body"]),
    at: pickPlace(dice),
    how: dice.pick(["FIN", "RST"]),
    wait: pickWait(dice),
  };
}

/**
 * Plans the session with this index. The plan depends only on the seed, the index and the abilities.
 * @param number the number from which the exchanges' ids are made; it differs from the index if a session is repeated
 */
export function planSession(
  seed: number,
  index: number,
  can: Abilities,
  number: number = index,
): Session {
  const dice = new Dice(seed, index);
  const version = dice.chance(6) && can.has("HTTP/1.0") ? "1.0" : "1.1";
  const pipelined = version === "1.1" && dice.chance(12) && can.has("pipelining");
  const count = version === "1.0" ? 1 : dice.between(pipelined ? 2 : 1, 8);
  const exchanges = Array.from({ length: count }, (_, at) =>
    pickExchange(dice, number * IDS_PER_SESSION + at, version, can),
  );
  if (pipelined) for (const exchange of exchanges) unhurry(exchange, can);
  const mayLeave = !pipelined || can.has("a client that leaves pipelined requests");
  const leaves = dice.chance(18) && mayLeave;
  const leave = pickLeave(dice, exchanges, pipelined);
  const left = exchanges[leave.exchange] as Exchange;
  if (leaves && leave.phase === "answer" && dice.chance(50)) {
    const isSeen =
      (leave.how === "RST" || can.has("a FIN is seen while the upstream is silent")) &&
      (left.request.framing === "none" || can.has("a client that has sent a body is seen leaving"));
    const waits = exchanges.slice(leave.exchange + 1).some(({ request }) => request.size > 0);
    const mayWait = !waits || can.has("a client that leaves is seen while its next upload waits");
    if (isSeen && mayWait) left.ending = { kind: "silent" };
  }
  if (leaves && leave.phase === "request" && left.request.framing === "chunked") {
    if (!can.has("a last chunk without its line end")) leave.at = beforeLastLine(leave.at);
  }
  const setup = dice.pick(["default", "default", "default", "hooked", "forwarded"] as const);
  const farewell = dice.pick(["FIN", "RST", "half"] as const);
  return { index, setup, pipelined, exchanges, ...(leaves && { leave }), farewell };
}

/** Moves a place towards the start, so that more than the final line end of a chunked body stays unsent. */
function beforeLastLine({ edge, by }: Place): Place {
  if (edge === "end") return { edge, by: by + 2 };
  return { edge, by: edge === "any" ? Math.floor(by * 0.95) : Math.min(by, 5) };
}

/** Removes the features of an exchange that prevent the client from pipelining another request behind it. */
function unhurry(exchange: Exchange, can: Abilities): void {
  exchange.early = false;
  delete exchange.intrusion;
  if (exchange.ending.kind === "cut" && !can.has("a pipelined response that breaks off")) {
    exchange.ending = { kind: "whole", after: "keep" };
  }
  if (!can.has("pipelined bodies"))
    exchange.request = { ...exchange.request, size: 0, framing: "none" };
}
