/** What happens in a session, a client's connection: all of it follows from the seed. */
import type { SetupName } from "../_setups.ts";

export type How = "FIN" | "RST";

/** An offset in the bytes of a message, relative to its parts. */
export interface Place {
  edge: "start" | "head" | "end" | "any";
  by: number;
}

/** A pause between two writes, or before something: turns of the event loop, or milliseconds. */
export interface Wait {
  turns: number;
  ms: number;
}

export interface Message {
  size: number;
  framing: "none" | "sized" | "chunked" | "close";
  /** The size of chunks; 0 for all in one. */
  chunk: number;
  /** Bytes of a field that makes the head longer. */
  pad: number;
  /** Between which writes the bytes are cut. */
  cuts: { at: Place; wait: Wait }[];
}

/** How the upstream ends its answer, and what becomes of the connection. */
export type Ending =
  | { kind: "whole"; after: "keep" | "close" | "fin" | "late fin" }
  /** The second attempt at the request, if there is one, meets the same if `again` is set. */
  | { kind: "cut"; at: Place; how: How; wait: Wait; again: boolean }
  /** No response: the client disconnects. */
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
/** What somebody else on the server does with Node's request and response. */
export type Intrusion = (typeof INTRUSIONS)[number];

export interface Exchange {
  id: number;
  method: string;
  version: "1.1" | "1.0";
  request: Message;
  status: number;
  response: Message;
  upstreamVersion: "1.1" | "1.0";
  /** 103 comes before the response. */
  hints: boolean;
  /** The upstream answers before it has the request's body. */
  early: boolean;
  /** Before the upstream answers. */
  delay: Wait;
  /** Milliseconds for which the upstream does not read. */
  deaf: number;
  ending: Ending;
  /** Where in the response's body the client reads no more for a while. */
  rests: { at: number; ms: number }[];
  intrusion?: Intrusion;
}

/** The client disconnects during an exchange. */
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
  /** `half`: the client ends its side, and reads what the server still sends: nothing. */
  farewell: How | "half";
}

/** Of a session's index and the place in it. */
export const IDS_PER_SESSION = 16;
