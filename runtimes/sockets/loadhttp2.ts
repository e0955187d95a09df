import type { Http2Client } from "../../src/http1/client.ts";

/** Loads the HTTP/2 client with the first request that asks for it: no other request needs these modules. */
export async function loadHttp2(): Promise<Http2Client> {
  return import("./http2/http2pool.ts");
}
