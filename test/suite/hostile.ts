/** The corpus of hostile bytes: the upstream sees one well-formed request for each, or nothing. */
import { expect } from "vitest";
import type { Client } from "../_client.ts";
import { framings, type Entry } from "../_corpus.ts";
import { type AnswerEntry, answers } from "../_corpus.answers.ts";
import { heads } from "../_corpus.heads.ts";
import type { Call } from "../_link.ts";
import type { Tools } from "../_suite.ts";
import { settled, until } from "../_wait.ts";
import { request } from "../_wire.ts";

/** So that all numbers have the three digits that lengths in the corpus count on. */
const first = 100;

/** The mark in the targets of an entry's requests, at any place where a server moves it. */
const numbered: RegExp = /^(.*?)\/([1-9]\d\d)(\/.*)$/;

interface Attempt {
  entry: Entry;
  client: Client;
  rest: Promise<Buffer>;
}

async function start(t: Tools, entry: Entry, id: number): Promise<Attempt> {
  const client = await t.connect();
  const rest = client.rest();
  client.send(entry.bytes.replaceAll("{id}", String(id)));
  return { entry, client, rest };
}

/** All at once: it is a connection for each, and a server that waits for more makes no one else wait. */
async function tryAll(t: Tools, entries: readonly Entry[]): Promise<void> {
  const { calls } = t.upstream;
  const attempts = await Promise.all(entries.map((entry, at) => start(t, entry, first + at)));
  await settled(() => {
    const answered = attempts.map(
      ({ client }) => client.socket.bytesRead + Number(client.isClosed),
    );
    return answered.reduce((sum, each) => sum + each, calls.length);
  });
  // A server that still waits for the rest sees the end of the connection.
  for (const { client } of attempts) client.finish();
  const texts = await Promise.all(attempts.map(({ rest }) => rest));
  await until(() => calls.every((call) => call.state !== "reading"), "all requests whole or cut");

  const wrong = attempts.flatMap(({ entry }, at) => {
    const seen = calls.filter((call) => numbered.exec(call.target)?.[2] === String(first + at));
    const fault = faultOf(entry, seen, first + at, (texts[at] as Buffer).toString("latin1"));
    return fault === undefined ? [] : [`${entry.name}: ${fault}`];
  });
  expect(wrong).toEqual([]);
  const strays = calls.filter((call) => !numbered.test(call.target));
  expect(strays.map((call) => call.head)).toEqual([]);
}

function faultOf(
  { name, may }: Entry,
  calls: readonly Call[],
  id: number,
  answer: string,
): string | undefined {
  const allowed = may.map((each) => each.replaceAll("{id}", String(id)).trimEnd());
  const whole = calls.filter((call) => call.state === "complete").map(textOf);
  for (const text of whole) {
    const at = allowed.findIndex((each) => isAllowed(text, each));
    if (at === -1) return `reached the upstream as ${JSON.stringify(whole)}`;
    allowed.splice(at, 1);
  }
  // One that was broken off did no harm, if it was not hidden in another.
  const cut = calls.find((call) => call.state === "cut" && call.target.includes("smuggled"));
  if (cut) return `began a request that was hidden: ${cut.target}`;
  const hidden = calls.flatMap((call) => call.names).find((each) => /^x-smuggled|_/.test(each));
  if (hidden) return `reached the upstream with ${hidden}`;
  const statuses = Array.from(answer.matchAll(/HTTP\/1\.[01] (\d{3})/g), ([, status]) => status);
  const answered = statuses.filter((status) => status === "200").length;
  if (answered > whole.length) return `was answered ${answered} times`;
  // No client's bytes are a fault of the proxy's, or of an upstream's. workerd says 500 to each tunnel by itself.
  const blames = statuses.some((status) => /50[0234]/.test(status ?? ""));
  if (blames && !name.includes("CONNECT")) return `was answered ${statuses.join()}`;
  if (name.startsWith("plain") && answered < may.length)
    return `was not answered but ${JSON.stringify(answer)}`;
  return undefined;
}

function isAllowed(text: string, pattern: string): boolean {
  if (!pattern.endsWith("*")) return text === pattern;
  return text.startsWith(pattern.slice(0, -1)) && !text.includes("smuggled");
}

/** As the corpus writes it: without the entry's number. */
function textOf(call: Call): string {
  const [, before = "", , path = ""] = numbered.exec(call.target) ?? [];
  return `${call.method} ${before}${path} ${call.text}`.trimEnd();
}

async function tryAnswer(t: Tools, { name, may }: AnswerEntry, at: number): Promise<string[]> {
  const client = await t.connect();
  client.send(request("GET", `/${at}`));
  try {
    // Its parser takes nothing that is not well-formed.
    const answer = await client.read();
    if (answer.headers.some(([field]) => /smuggled/i.test(field))) return [`${name}: smuggled`];
    if (answer.status === 200 && may.includes(answer.text)) return [];
    if (!name.startsWith("plain") && (answer.status === 502 || answer.cut)) return [];
    return [`${name}: ${answer.status} ${JSON.stringify(answer.text)}`];
  } catch (error) {
    // A server that has not sent the head when the body breaks off sends nothing at all.
    const silent = String(error).endsWith('closed before a response head, after ""');
    return silent && !name.startsWith("plain") ? [] : [`${name}: ${String(error)}`];
  }
}

export const hostile = {
  async "corpus: requests with ambiguous lengths, transfer codings and chunks"(
    t: Tools,
  ): Promise<void> {
    await tryAll(t, framings);
  },

  async "corpus: requests with malformed, unusual, huge or many header fields"(
    t: Tools,
  ): Promise<void> {
    await tryAll(t, heads);
  },

  async "corpus: ambiguous responses"(t: Tools): Promise<void> {
    const { upstream } = t;
    upstream.script = async (call) => {
      // Each has a connection of its own: none is kept before all are there.
      await until(() => upstream.calls.length >= answers.length, "all requests");
      call.write(answers[Number(call.target.slice(1))]?.bytes ?? "");
      call.close();
    };
    const wrong = await Promise.all(answers.map((entry, at) => tryAnswer(t, entry, at)));
    expect(wrong.flat()).toEqual([]);
    // Nothing of them is left on a connection.
    await until(() => upstream.links.every((link) => link.isClosed), "all connections closed");
    upstream.script = (call) => call.reply(200, [], call.target);
    await Promise.all(
      Array.from({ length: 50 }, async (_, count) => {
        const answer = await t.ask(request("GET", `/after-${count}`));
        expect(answer).toMatchObject({ status: 200, text: `/after-${count}` });
      }),
    );
  },
};
