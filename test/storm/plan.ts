/**
 * The plan of a session: exchanges of one client on one connection or, after its close, on a new one. The seed determines it.
 */
import type { SetupName } from "../hosts/_setups.ts";

export type How = "FIN" | "RST";

/**
 * A place in the bytes of a message: `by` bytes after its start, after the last field line of its head, or before its end; with
 * "any", `by` thousandths of the whole message.
 */
export interface Place {
  edge: "start" | "head" | "end" | "any";
  by: number;
}

/** A pause, in turns of the event loop and in milliseconds. */
export interface Wait {
  turns: number;
  ms: number;
}

export interface Message {
  size: number;
  framing: "none" | "sized" | "chunked" | "close";
  /** The size of chunks in bytes; 0 if the body is one chunk. */
  chunk: number;
  /** The length in bytes of a field that makes the head longer. */
  pad: number;
  /** The places at which the bytes are divided into writes, each with a pause. */
  cuts: { at: Place; wait: Wait }[];
}

/** How the upstream ends its response, and what it then does with the connection. */
export type Ending =
  | { kind: "whole"; after: "keep" | "close" | "fin" | "late fin" }
  /** The response breaks off at `at`. If `again` is set, so does the response to a second attempt at the request. */
  | { kind: "cut"; at: Place; how: How; wait: Wait; again: boolean }
  /** The upstream does not respond until the client disconnects. */
  | { kind: "silent" };

export const INTRUSIONS = [
  "data before",
  "data in a microtask",
  "data later",
  "readable later",
  "resume later",
  "read later",
  "response watched",
  "response wrapped",
] as const;
/** What other code in the process does with Node's request and response. */
export type Intrusion = (typeof INTRUSIONS)[number];

export interface Exchange {
  id: number;
  method: string;
  version: "1.1" | "1.0";
  request: Message;
  status: number;
  response: Message;
  upstreamVersion: "1.1" | "1.0";
  /** Whether the upstream sends a 103 before the response. */
  hints: boolean;
  /** Whether the upstream answers before it has received the request's body. */
  early: boolean;
  delay: Wait;
  /** The time in milliseconds for which the upstream does not read. */
  deaf: number;
  ending: Ending;
  /** The places in the response's body at which the client stops reading for a while. */
  rests: { at: number; ms: number }[];
  intrusion?: Intrusion;
}

/** Where in an exchange the client disconnects. */
export interface Leave {
  exchange: number;
  phase: "request" | "answer" | "body";
  at: Place;
  how: How;
  wait: Wait;
}

export interface Session {
  index: number;
  setup: SetupName;
  pipelined: boolean;
  exchanges: Exchange[];
  leave?: Leave;
  /** How the client ends the session. `half`: it half-closes, and expects the server to close without sending more. */
  farewell: How | "half";
}

/** The number of ids for each session. An exchange's id is made of `number` of `planSession` and its place in the session. */
export const IDS_PER_SESSION = 16;
