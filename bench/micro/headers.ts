import { cleanRequestHeaders } from "../../src/request/outgoing.ts";
import { cleanResponseHeaders } from "../../src/response/clean.ts";
import { parseTarget } from "../../src/target/target.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import { NameSet, toHeaderList, toHeaders } from "../../src/fields/headers.ts";
import { REQUEST_ASSERTIONS, REQUEST_DROPPED } from "../../src/fields/hopbyhop.ts";
import type { Steps } from "./run.ts";

/** The header fields that a browser sends. */
export const browser: string[] = [
  ["Host", "shop.example"],
  ["Connection", "keep-alive"],
  ["sec-ch-ua", '"Chromium";v="140", "Not=A?Brand";v="24"'],
  ["sec-ch-ua-mobile", "?0"],
  ["Upgrade-Insecure-Requests", "1"],
  ["User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0"],
  ["Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"],
  ["Sec-Fetch-Site", "none"],
  ["Sec-Fetch-Mode", "navigate"],
  ["Accept-Encoding", "gzip, deflate, br, zstd"],
  ["Accept-Language", "en-GB,en;q=0.9"],
  ["Cookie", "session=0123456789abcdef0123456789abcdef; theme=dark"],
].flat();

/** The header fields that a load generator sends. */
export const plain: string[] = ["Host", "127.0.0.1:8080", "Accept", "*/*", "User-Agent", "bench"];

export const answer: string[] = [
  ["Content-Type", "text/html; charset=utf-8"],
  ["Content-Length", "1024"],
  ["Cache-Control", "max-age=60"],
  ["ETag", '"bench"'],
  ["Date", "Sat, 21 Nov 2026 00:00:00 GMT"],
  ["Connection", "keep-alive"],
  ["Keep-Alive", "timeout=5"],
].flat();

const dropped = new NameSet(REQUEST_DROPPED, REQUEST_ASSERTIONS);
const nominating = [...browser, "Connection", "close, x-a, x-b"];
const asHeaders = toHeaders(browser);
const request: UpstreamRequest = {
  upstream: parseTarget("http://127.0.0.1:4000"),
  method: "GET",
  path: "/",
  headers: [],
  host: undefined,
  body: null,
  contentLength: undefined,
};
const response: UpstreamResponse = { status: 200, statusText: "OK", headers: answer, body: null };

export const headers: Steps = {
  "clean a request of 3 fields": () => cleanRequestHeaders(plain, dropped),
  "clean a request of 12 fields": () => cleanRequestHeaders(browser, dropped),
  "clean a request that nominates fields": () => cleanRequestHeaders(nominating, dropped),
  "clean a response of 7 fields": () => cleanResponseHeaders(response, request),
  "list to Headers, 12 fields": () => toHeaders(browser),
  "Headers to list, 12 fields": () => toHeaderList(asHeaders),
};
