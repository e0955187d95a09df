/** Functions that process many header fields must take linear time; responses.test.ts says why. */
import type { IncomingMessage } from "node:http";
import { expect, test } from "vitest";
import { assertHead, writeHead } from "../../../src/http1/attempt.ts";
import { portableCodec } from "../http1/_codec.ts";
import { messageHeaders } from "../../../runtimes/node/internals/rawfields.ts";
import { respond } from "../../../runtimes/node/noderesponse.ts";
import { amend } from "../../../src/fields/amend.ts";
import { dropUntrusted } from "../../../src/request/chain.ts";
import { takeDraft, toDraft } from "../../../src/exchange/hooks.ts";
import { changedFields } from "../../../src/exchange/redirect.ts";
import { addForwarded, addVia, cleanRequestHeaders } from "../../../src/request/outgoing.ts";
import { cleanResponseHeaders } from "../../../src/response/clean.ts";
import { NameSet, toHeaderList, toHeaders } from "../../../src/fields/headers.ts";
import { REQUEST_ASSERTIONS, REQUEST_DROPPED } from "../../../src/fields/hopbyhop.ts";
import { WebIncoming } from "../../../src/request/incoming.ts";
import { growthOf, hopTo, LINEAR, lines, numbered, replyOf, type Sized } from "./_growth.ts";

const incoming = new WebIncoming(new Request("http://proxy.test/"), undefined);

const dropped = new NameSet(REQUEST_DROPPED, REQUEST_ASSERTIONS);

const cases: [string, Sized][] = [
  [
    "many fields of a request",
    (size) => {
      const list = lines(size, (i) => [numbered("x-forwarded", i), "y"]);
      return () => cleanRequestHeaders(list, dropped);
    },
  ],
  [
    "many fields, many of them nominated",
    (size) => {
      const list = lines(size, (i) => [numbered("x", i), "y"]);
      const connection = list.filter((_, i) => i % 4 === 0).join(",");
      return () => [
        cleanRequestHeaders(["Connection", connection, ...list], dropped),
        cleanResponseHeaders(replyOf(["Connection", connection, ...list]), hopTo("/")),
      ];
    },
  ],
  [
    "many lines of Connection",
    (size) => {
      const list = lines(size, () => ["Connection", "a"]);
      return () => [
        cleanRequestHeaders(list, dropped),
        cleanResponseHeaders(replyOf(list), hopTo("/")),
      ];
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
        const headers = [...list];
        dropUntrusted(headers, () => true);
        addForwarded(headers, "x-forwarded", true, {
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
      return () => {
        const draft = toDraft(from);
        for (const name of toHeaders(from.headers).keys()) draft.headers.set(name, "1");
        return changedFields(from.headers, takeDraft(from, draft).headers);
      };
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
      return () => {
        assertHead(from);
        writeHead(portableCodec, from, "");
      };
    },
  ],
];

test.each(cases)("the running time grows linearly with the input: %s", (_, make) => {
  expect(growthOf(make)).toBeLessThan(LINEAR);
});
