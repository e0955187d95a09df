/**
 * Nothing that bytes from the wire go through takes more than linear time: a field of 16 KB that takes
 * quadratic time holds the event loop, and with it all other requests, for hundreds of milliseconds.
 */
import { readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { transform } from "esbuild";
import { describe, expect, test } from "vitest";
import { parseHead } from "../runtimes/http/head.ts";
import { ResponseParser } from "../runtimes/http/parser.ts";
import { writeHead } from "../runtimes/http/request.ts";
import { messageHeaders } from "../runtimes/node/headers.ts";
import { toRequest } from "../runtimes/node/request.ts";
import { respond } from "../runtimes/node/response.ts";
import { amend } from "../src/amend.ts";
import { cutChain } from "../src/chain.ts";
import { compileCookieRewrite } from "../src/cookies.ts";
import { fieldsOf, fromDraft, toDraft } from "../src/draft.ts";
import { addForwarded, type ForwardedStyle } from "../src/forwarded.ts";
import {
  cleanRequest,
  cleanResponse,
  isEventStream,
  NameSet,
  REQUEST_ASSERTIONS,
  REQUEST_DROPPED,
  toHeaderList,
  toHeaders,
} from "../src/headers.ts";
import { pathOf, WebIncoming } from "../src/incoming.ts";
import { nextHop, redirectPolicy } from "../src/redirect.ts";
import { cleanReply } from "../src/reply.ts";
import { compileResponseRewrite } from "../src/rewrite.ts";
import { guardEscape, joinTarget, parseTarget } from "../src/target.ts";
import type { HeaderList, Hop, Reply } from "../src/transport.ts";
import { compileTrust } from "../src/trust.ts";
import { addVia } from "../src/via.ts";
import { growthOf, LINEAR, literalsIn, type Sized } from "./_growth.ts";

/** What no rule is made for is refused, which may take no longer than to take it. */
function tried(run: () => unknown): () => unknown {
  return () => {
    try {
      return run();
    } catch (error) {
      return error;
    }
  };
}

/** A text of this size that begins and ends as it says, and is full of the same. */
function fill(size: number, before: string, filling: string, after = ""): string {
  return before + filling.repeat(Math.ceil(size / filling.length)) + after;
}

/** So many lines of fields. */
function lines(size: number, field: (index: number) => [name: string, value: string]): HeaderList {
  return Array.from({ length: size }, (_, index) => field(index)).flat();
}

/** Names that are all of the same length. */
const numbered = (prefix: string, index: number): string => prefix + String(index).padStart(6, "0");

/** Every text in `texts` becomes a row of its own: [before, filling, after]. */
type Texts = readonly (readonly [before: string, filling: string, after?: string])[];

function each(name: string, texts: Texts, use: (text: string) => unknown): [string, Sized][] {
  return texts.map(([before, filling, after]) => [
    `${name}: ${JSON.stringify(`${before}${filling}…${after ?? ""}`)}`,
    (size) => {
      const text = fill(size, before, filling, after);
      return () => use(text);
    },
  ]);
}

const upstream = parseTarget("http://up.test/base?q");
const hop: Hop = {
  upstream,
  method: "GET",
  path: "/base/x",
  headers: [],
  host: undefined,
  body: null,
  contentLength: undefined,
};
const hopTo = (path: string, headers: HeaderList = []): Hop => ({ ...hop, path, headers });
const replyOf = (headers: HeaderList, statusText = ""): Reply => ({
  status: 302,
  statusText,
  headers,
  body: null,
});
const incoming = new WebIncoming(new Request("http://proxy.test/"), undefined);

const responseHead = (field: string): unknown =>
  parseHead(`HTTP/1.1 200 OK\r\n${field}\r\n\r\n`, false);

function feed(text: string, pieceLength: number): unknown {
  const bytes = Buffer.from(text, "latin1");
  const parser = new ResponseParser({ onHead() {}, onPiece() {}, onEnd() {} });
  parser.begin("GET");
  for (let at = 0; at < bytes.length; at += pieceLength) {
    parser.feed(new Uint8Array(bytes.subarray(at, at + pieceLength)));
  }
  return parser;
}

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const cookie = compileCookieRewrite("a", "/b") as (cookie: string) => string;
const cookieMap = compileCookieRewrite({ a: "b" }, { "/": "" }) as (cookie: string) => string;
const rewriteResponse = compileResponseRewrite(
  { locationRewrite: { "http://up.test/": "/" }, cookieDomainRewrite: "a" },
  "/prefix",
) as (headers: HeaderList, hop: Hop, followed?: Hop) => void;
const dropped = new NameSet([...REQUEST_DROPPED, ...REQUEST_ASSERTIONS]);
const trusts = compileTrust(["10.0.0.0/8", "fd00::/8"]) as (address: string) => boolean;
const believes = compileTrust((address) => address !== "") as (address: string) => boolean;
const anyone = (): boolean => true;

function forwarded(style: ForwardedStyle, address: string, host: string): unknown {
  return addForwarded([], style, false, { address, host, secure: false });
}

const spaces: Texts = [
  ["a", " ", "x"],
  ["a", " \t", "x"],
  ["", ","],
  ["a", " , ", "x"],
  ["", "close "],
];
const cookies: Texts = [
  ["a=b; path=", " ", 'x""'],
  ["a=b; path=/", " ", '""'],
  ['a=b; path="', " ", '""'],
  ["a=b; path=", '"'],
  ["a=b; path=x", ' "'],
  ["a=b;", " ", "path"],
  ["a=b; domain", " ", "=x"],
  ["a=b; domain=x", " \t", "y"],
  ["=", " ", '"'],
  ['a="', ';="'],
  ["", ";"],
  ["a", '=" '],
  ['a="b"', " ", "c"],
  ['a="', '" '],
  ["a=b", ";path=/x", ";"],
  ["a=b", '; domain="'],
];
const references: Texts = [
  ["", "/"],
  ["http:", "/"],
  ["", "\\/"],
  ["http://", "a"],
  ["http://up.test/base", "/.."],
  ["/base", "/%2e%2e"],
  ["http://up.test/", "?"],
  ["http://up.test:", "0", "80/"],
  ["/", "\u0080"],
  ["http://", "a.", "@up.test/"],
  ["", "#"],
];
const chains: Texts = [
  ["", "1,"],
  ["", "10.0.0.1, "],
  ["", " ", "x"],
  ["", "["],
  ["", ":", "g"],
  ["1.2.3.4:", "_", "!"],
];
const elements: Texts = [
  ["", "for=1,"],
  ["", "a=b;"],
  ['for="', "\\a"],
  ["", ";"],
  ["", " ", "x"],
  ["for=a", " ", "x"],
];
const paths: Texts = [
  ["/", "%25", "2e"],
  ["/", "../"],
  ["/", "."],
  ["/", "%"],
  ["/", "..;"],
  ["/", "?"],
  ["/", "\\"],
];

const cases: [string, Sized][] = [
  // ── responses ──
  ...each("Connection of a response", spaces, (text) => responseHead(`Connection: ${text}`)),
  ...each(
    "a head",
    [
      ["", "Connection: a\r\n", "X: y"],
      ["", "Transfer-Encoding: identity\r\n", "X: y"],
      ["", "X: y\r\n", "X: y"],
      ["", "X\r\n"],
      ["Keep-Alive: ", "timeout="],
      ["Keep-Alive: timeout=", "1", "x"],
      ["Content-Length: ", "1"],
      ["X:", " ", "y"],
      ["X:", "\r"],
    ],
    (text) => tried(() => responseHead(text))(),
  ),
  ...each("a status line", [["HTTP/1.1 200 ", " ", "\r\n\r\n"]], (text) => parseHead(text, false)),
  ...each(
    "chunks",
    [
      [chunkedHead, "1\r\na\r\n", "0\r\n\r\n"],
      [chunkedHead, "0"],
      [`${chunkedHead}1`, " ", "\r\n"],
      [`${chunkedHead}0\r\n`, "X: y\r\n", "\r\n"],
    ],
    (text) => tried(() => feed(text, 65_536))(),
  ),
  ...each("a body, a byte at a time", [[chunkedHead, "1\r\na\r\n"]], (text) => feed(text, 1)),
  ...each("a head, a byte at a time", [["HTTP/1.1 200 OK\r\n", "X: y\r\n"]], (text) =>
    tried(() => feed(text, 1))(),
  ),
  ...each("Connection, nominating", [["", "a,"]], (text) =>
    cleanResponse(200, ["Connection", text, ...lines(100, (i) => [`x${i}`, "y"])]),
  ),
  ...each("Transfer-Encoding", [["chunked", " ", "x"]], (text) =>
    tried(() => cleanResponse(200, ["Transfer-Encoding", text]))(),
  ),
  ...each("a reason phrase", [["", " ", "\u0100"]], (text) =>
    cleanReply(replyOf([], text), "GET", "GET"),
  ),
  ...each("Set-Cookie", cookies, cookie),
  ...each("Set-Cookie, by a map", cookies, cookieMap),
  ...["Location", "Content-Location", "Refresh"].flatMap((name) =>
    each(name, references, (text) => {
      const value = name === "Refresh" ? `0; url=${text}` : text;
      rewriteResponse([name, value], hop);
      rewriteResponse([name, value], hop, hop);
    }),
  ),
  ...each(
    "Refresh",
    [
      ["5", " ", "x"],
      ["5;", " ", "url x"],
      ["5; url", " ", "="],
      ["", " ", "5"],
      ["5", ";"],
      ["", "."],
      ["5; url=", '"'],
    ],
    (text) => rewriteResponse(["Refresh", text], hop),
  ),
  ...each("Location, followed", references, (text) =>
    nextHop(hop, replyOf(["Location", text]), redirectPolicy("any"), []),
  ),
  ...each("Content-Type", [["text/event-stream", " ", "x"]], (text) =>
    isEventStream(["Content-Type", text]),
  ),

  // ── requests ──
  ...each("Connection of a request", spaces, (text) =>
    cleanRequest(["Connection", text, "x", "y"], dropped),
  ),
  ...each(
    "Host",
    [
      ["a", " "],
      ["", "a"],
      ["", ":"],
    ],
    (text) => tried(() => cleanRequest(["Host", text], dropped))(),
  ),
  ...each("X-Forwarded-For", chains, (text) => {
    for (const trust of [trusts, believes, anyone])
      cutChain(["X-Forwarded-For", text], trust as never);
  }),
  ...each(
    "X-Forwarded-Host",
    [
      ["", "a,"],
      ["", " ", "x"],
    ],
    (text) => cutChain(["X-Forwarded-For", "1.1.1.1", "X-Forwarded-Host", text], trusts as never),
  ),
  ...each("Forwarded", elements, (text) => cutChain(["Forwarded", text], trusts as never)),
  ...each(
    "an address",
    [
      ["", ":"],
      ["", ":", "g"],
      ["", "1."],
      ["1", "%"],
      ["::ffff:", "1"],
    ],
    (text) => {
      trusts(text);
      believes(text);
      forwarded("forwarded", text, "a");
      forwarded("x-forwarded", text, "a");
    },
  ),
  ...each(
    "Host, forwarded",
    [
      ["", ":1", "x"],
      ["a:", "1", "x"],
      ["", '"'],
    ],
    (text) => {
      forwarded("forwarded", "::1", text);
      forwarded("x-forwarded", "::1", text);
    },
  ),
  ...each(
    "Via",
    [
      ["a", " ", "b"],
      ["", "1.1 a,"],
      ["", "("],
      ["", ","],
    ],
    (text) => addVia(["Via", text], "x", "1.1"),
  ),
  ...each("a path", paths, (text) => {
    tried(() => guardEscape(text))();
    tried(() => joinTarget(upstream, text))();
    pathOf(`http://a${text}`);
  }),
  ...each(
    "a URL for hooks",
    [
      ["", "a@"],
      ["", "a."],
    ],
    (text) => toRequest("http", text, { method: "GET", path: "/", headers: [] }),
  ),
  ...each("a field to write", [["a", " ", "\u0100"]], (text) =>
    tried(() => writeHead(hopTo("/", ["x", text])))(),
  ),

  // ── many fields ──
  [
    "many fields of a request",
    (size) => {
      const list = lines(size, (i) => [numbered("x-forwarded", i), "y"]);
      return () => cleanRequest(list, dropped);
    },
  ],
  [
    "many fields, many of them nominated",
    (size) => {
      const list = lines(size, (i) => [numbered("x", i), "y"]);
      const connection = list.filter((_, i) => i % 4 === 0).join(",");
      return () => [
        cleanRequest(["Connection", connection, ...list], dropped),
        cleanResponse(200, ["Connection", connection, ...list]),
      ];
    },
  ],
  [
    "many lines of Connection",
    (size) => {
      const list = lines(size, () => ["Connection", "a"]);
      return () => [cleanRequest(list, dropped), cleanResponse(200, list)];
    },
  ],
  [
    "many lines of Via",
    (size) => {
      const list = lines(size, () => ["Via", ""]);
      return () => addVia([...list], "x", "1.1");
    },
  ],
  [
    "many lines of forwarding fields",
    (size) => {
      const names = ["X-Forwarded-For", "X-Forwarded-Host", "X_Forwarded_For", "Forwarded"];
      const list = lines(size, (i) => [names[i % 4] as string, "1.1.1.1"]);
      return () => {
        const headers = cutChain(list, anyone);
        addForwarded([...headers], "x-forwarded", true, {
          address: "::1",
          host: "a",
          secure: false,
        });
        addForwarded([...list], "forwarded", true, { address: "::1", host: "a", secure: false });
      };
    },
  ],
  [
    "many lines of one field, as Node joins them",
    (size) => {
      const rawHeaders = lines(size, () => ["X", "y"]);
      const headers = { x: rawHeaders.filter((_, i) => i % 2 === 1).join(", ") };
      const message = { rawHeaders, headers } as unknown as IncomingMessage;
      return () => messageHeaders(message);
    },
  ],
  [
    "many fields, as Node joins them, some changed",
    (size) => {
      const rawHeaders = lines(size, (i) => [numbered("x", i), "y"]);
      const headers: Record<string, string> = { z: "1" };
      for (let i = 0; i < rawHeaders.length; i += 2) headers[rawHeaders[i] as string] = "changed";
      const message = { rawHeaders, headers } as unknown as IncomingMessage;
      return () => messageHeaders(message);
    },
  ],
  [
    "many fields of a response, as a Response",
    (size) => {
      const reply = replyOf(lines(size, (i) => [numbered("x", i), "y"]));
      return () => respond(reply, incoming);
    },
  ],
  [
    "many fields, as Headers and back",
    (size) => {
      const list = lines(size, (i) => [numbered("x", i), "y"]);
      return () => toHeaderList(toHeaders(list));
    },
  ],
  [
    "many fields, through a hook",
    (size) => {
      const from = hopTo(
        "/",
        lines(size, (i) => [numbered("x", i), "y"]),
      );
      return () => fieldsOf(from, fromDraft(from, toDraft(from)));
    },
  ],
  [
    "many fields, some of them left out",
    (size) => {
      const list = lines(size, (i) => [numbered("x", i), "y"]);
      const original = { headers: toHeaders(list), list };
      const changed = [...list.filter((_, i) => i % 4 < 2), "x-new", "1"];
      return () => amend(original, changed);
    },
  ],
  [
    "many fields to write",
    (size) => {
      const from = hopTo(
        "/",
        lines(size, (i) => [numbered("x", i), "y"]),
      );
      return () => writeHead(from);
    },
  ],
];

test.each(cases)("time grows with the input and no faster: %s", (_, make) => {
  expect(growthOf(make)).toBeLessThan(LINEAR);
});

describe("regular expressions", () => {
  /** What they are given: each of these before so many of those, and behind them what they may not end with. */
  const befores = [
    "",
    "a",
    "a=",
    "5",
    ";",
    ";path=",
    ";path=x",
    "/",
    "http://",
    ":",
    "::ffff:",
    "[",
  ];
  const fillings = [
    " ",
    "\t",
    "a",
    "1",
    "0",
    ".",
    ":",
    "/",
    "\\",
    "=",
    ";",
    ",",
    '"',
    "%",
    "#",
    "?",
  ];
  const pairs = ["a,", " ,", "a=", '="', ' "', "\\a", "/.", "%2e", "..", "1.", ":1", "\r\n", "\r"];
  const ends = ["", "x", "!", '""', "\u0100", "\n"];
  const texts = befores.flatMap((before) =>
    [...fillings, ...pairs].flatMap((filling) =>
      ends.map((end) => (size: number) => fill(size, before, filling, end)),
    ),
  );
  const long = texts.map((text) => text(16_000));
  const root = new URL("../", import.meta.url);
  const sources = [
    "src/",
    "runtimes/",
    "runtimes/http/",
    "runtimes/node/",
    "runtimes/pool/",
  ].flatMap((directory) =>
    readdirSync(new URL(directory, root))
      .filter((name) => name.endsWith(".ts"))
      .map((name) => directory + name),
  );

  test.each(sources)("of %s take linear time", async (source) => {
    const text = readFileSync(new URL(source, root), "utf8");
    const { code } = await transform(text.replace(/^#!.*/, ""), {
      loader: "ts",
      minifyWhitespace: true,
      supported: { "template-literal": false },
    });
    for (const literal of literalsIn(code)) {
      // All matches: what looks for one only takes no longer.
      const all = new RegExp(literal, `${literal.flags.replace("g", "")}g`);
      long.forEach((given, index) => {
        const start = performance.now();
        given.replace(all, "");
        // Most are over in less time than a quadratic one could take.
        if (performance.now() - start < 0.5) return;
        const growth = growthOf((size) => {
          const sized = texts[index]?.(size) as string;
          return () => sized.replace(all, "");
        });
        expect(growth, `${String(literal)} on ${given.slice(0, 20)}`).toBeLessThan(LINEAR);
      });
    }
  });

  test("are found in the sources", () => {
    const code =
      'const a=/^x[/"]\\/y/gi,b="/no/",c=["=/no/"];c(/a/.test(d));return/b/;e/f/g;x=1/2/3';
    expect(literalsIn(code).map(String)).toEqual(['/^x[/"]\\/y/gi', "/a/", "/b/"]);
  });
});
