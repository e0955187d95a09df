/** HMAC with SHA-256, compared with Node's own. */
import { createHash, createHmac } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import { hmac, sha256 } from "../../../src/upstreams/sha256.ts";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

test("the hash is right for messages of every length around a block", () => {
  for (let length = 0; length < 200; length++) {
    const message = new Uint8Array(length).fill(length);
    expect(hex(sha256(message))).toBe(createHash("sha256").update(message).digest("hex"));
  }
});

test("the HMAC is right for any message and any key", () => {
  const bytes = fc.uint8Array({ maxLength: 300 });
  fc.assert(
    fc.property(bytes, bytes, (key, message) => {
      expect(hex(hmac(key, message))).toBe(createHmac("sha256", key).update(message).digest("hex"));
    }),
  );
});
