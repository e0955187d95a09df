/**
 * Signs each attempt to send a request to the upstream, so that a retry has a new date and a new signature:
 *
 *     FETCHWAY_SECRET=… npx srvx index.ts     # or with bun run, deno serve -A
 */
import { createProxy } from "fetchway";
import { type Interceptor, setHeader } from "fetchway/transport";

const target = "http://127.0.0.1:4000";
const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const hmac = { name: "HMAC", hash: "SHA-256" };
const secret = globalThis.process?.env["FETCHWAY_SECRET"] ?? "for development only";
const key = crypto.subtle.importKey("raw", bytes(secret), hmac, false, ["sign"]);

export const sign: Interceptor = (next) => async (request, scope) => {
  // A followed redirect may lead to another origin, which must not see a signature.
  if (request.upstream.origin !== target) return next(request, scope);
  const date = new Date().toUTCString();
  const text = bytes(`${request.method} ${request.path}\n${date}`);
  const signature = new Uint8Array(await crypto.subtle.sign("HMAC", await key, text));
  const hex = Array.from(signature, (byte) => byte.toString(16).padStart(2, "0")).join("");
  // `setHeader` replaces fields of the same name that the client sent.
  const headers = setHeader(setHeader(request.headers, "Date", date), "X-Signature", hex);
  return next({ ...request, headers }, scope);
};

export default createProxy({ target, interceptors: { attempt: [sign] } });
