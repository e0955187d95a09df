/**
 * HMAC with SHA-256 as a synchronous function. Web Crypto returns a promise. On Node, the promise waits for a thread of a
 * pool, and slow DNS lookups may occupy all of its threads.
 * @see https://www.rfc-editor.org/rfc/rfc2104
 * @see https://www.rfc-editor.org/rfc/rfc6234
 */
import { concat } from "../body/memory.ts";

const BLOCK = 64;

/** Returns the first 32 bits of the fractional part of a root. */
function fraction(root: number): number {
  return ((root % 1) * 2 ** 32) | 0;
}

/** The prime numbers from which the constants are derived. */
const PRIMES: readonly number[] = Array.from({ length: 311 }, (_, n) => n + 2)
  .filter((n, _, all) => all.every((factor) => factor >= n || n % factor !== 0))
  .slice(0, 64);
const ROUNDS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));

function rotate(word: number, bits: number): number {
  return (word >>> bits) | (word << (32 - bits));
}

export function sha256(message: Uint8Array): Uint8Array {
  // Pad the message to whole blocks: with a bit that is 1, zeros, and the length of the message in 64 bits.
  const padded = new Uint8Array(Math.ceil((message.length + 9) / BLOCK) * BLOCK);
  padded.set(message);
  padded[message.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setBigUint64(padded.length - 8, BigInt(message.length) * 8n);
  const state = START.slice();
  const words = new Int32Array(64);
  for (let at = 0; at < padded.length; at += BLOCK) {
    for (let i = 0; i < 64; i++) {
      if (i < 16) {
        words[i] = view.getInt32(at + 4 * i);
        continue;
      }
      const [early, late] = [words[i - 15] as number, words[i - 2] as number];
      const one = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3);
      const other = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10);
      words[i] = (words[i - 16] as number) + one + (words[i - 7] as number) + other;
    }
    mix(state, words);
  }
  const result = new DataView(new ArrayBuffer(32));
  for (const [i, word] of state.entries()) result.setInt32(4 * i, word);
  return new Uint8Array(result.buffer);
}

/** Mixes a block, expanded to 64 words, into the state. */
function mix(state: Int32Array, words: Int32Array): void {
  let [a, b, c, d, e, f, g, h] = state as unknown as number[] as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  for (let i = 0; i < 64; i++) {
    const chosen = (e & f) ^ (~e & g);
    const turned = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const one = (h + turned + chosen + (ROUNDS[i] as number) + (words[i] as number)) | 0;
    const most = (a & b) ^ (a & c) ^ (b & c);
    const other = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + most;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + other) | 0];
  }
  for (const [i, word] of [a, b, c, d, e, f, g, h].entries()) {
    state[i] = (state[i] as number) + word;
  }
}

export function hmac(key: Uint8Array, message: Uint8Array): Uint8Array {
  const block = new Uint8Array(BLOCK);
  block.set(key.length > BLOCK ? sha256(key) : key);
  const inner = sha256(concat([block.map((byte) => byte ^ 0x36), message]));
  return sha256(concat([block.map((byte) => byte ^ 0x5c), inner]));
}
