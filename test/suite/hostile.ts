/**
 * The corpus of hostile bytes. For each entry, the upstream gets no request, or only well-formed requests that the entry
 * allows.
 */
import { expect } from "vitest";
import type { Client } from "../helpers/client.ts";
import { framings, type Entry } from "../helpers/corpus.ts";
import { type AnswerEntry, answers } from "../helpers/corpus.answers.ts";
import { heads } from "../helpers/corpus.heads.ts";
import type { Call } from "../helpers/link.ts";
import { rfc } from "../conformance/rfc.ts";
import type { Tools } from "./_suite.ts";
import { settled, until } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";

/** The number of the first entry. All numbers must have three digits, because lengths in the corpus depend on it. */
const first = 100;

/** Finds the number of the entry in a request target. A server may have put a prefix in front of the number. */
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

/**
 * Tries all entries at the same time, each on a separate connection, so that a server that waits for more bytes delays no
 * other entry.
 */
async function tryAll(t: Tools, entries: readonly Entry[]): Promise<void> {
  const { calls } = t.upstream;
  const attempts = await Promise.all(entries.map((entry, at) => start(t, entry, first + at)));
  const seenBy = ({ client }: Attempt): number => client.socket.bytesRead + Number(client.isClosed);
  const plain = attempts.filter(({ entry }) => entry.name.startsWith("plain"));
  await until(() => plain.every((each) => seenBy(each) > 0), "plain answers").catch(() => {});
  await settled(
    () => attempts.reduce((sum, each) => sum + seenBy(each), calls.length),
    undefined,
    800,
  );
  // Half-close the connections, so that a server stops waiting for the rest of an incomplete request.
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
  // A truncated request at the upstream is harmless unless it was hidden in another request.
  const cut = calls.find((call) => call.state === "cut" && call.target.includes("smuggled"));
  if (cut) return `began a request that was hidden: ${cut.target}`;
  const hidden = calls.flatMap((call) => call.names).find((each) => /^x-smuggled|_/.test(each));
  if (hidden) return `reached the upstream with ${hidden}`;
  const statuses = Array.from(answer.matchAll(/HTTP\/1\.[01] (\d{3})/g), ([, status]) => status);
  const answered = statuses.filter((status) => status === "200").length;
  if (answered > whole.length) return `was answered ${answered} times`;
  // Faulty bytes of a client must not get 500, 502, 503 or 504, which would blame the proxy or the upstream. Only
  // CONNECT may, because workerd itself answers it with 500.
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

/** Describes a request as the corpus does: without the entry's number. */
function textOf(call: Call): string {
  const [, before = "", , path = ""] = numbered.exec(call.target) ?? [];
  return `${call.method} ${before}${path} ${call.text}`.trimEnd();
}

async function tryAnswer(t: Tools, { name, may }: AnswerEntry, at: number): Promise<string[]> {
  const client = await t.connect();
  client.send(request("GET", `/${at}`));
  try {
    // The parser of this client accepts only well-formed responses.
    const answer = await client.read();
    if (answer.headers.some(([field]) => /smuggled/i.test(field))) return [`${name}: smuggled`];
    if (answer.status === 200 && may.includes(answer.text)) return [];
    if (!name.startsWith("plain") && (answer.status === 502 || answer.cut)) return [];
    return [`${name}: ${answer.status} ${JSON.stringify(answer.text)}`];
  } catch (error) {
    // If the body fails before the server has sent the head, the server closes the connection without a response.
    const silent = String(error).endsWith('closed before a response head, after ""');
    return silent && !name.startsWith("plain") ? [] : [`${name}: ${String(error)}`];
  }
}

export const hostile = {
  async "corpus: no request with an ambiguous length, transfer coding or chunk smuggles another request"(
    t: Tools,
  ): Promise<void> {
    rfc(
      "9110-2.3-defensive",
      "9110-5.5-white-space",
      "9110-8.6-large",
      "9112-7.1-large-sizes",
      "9112-7.1-parameters",
    );
    await tryAll(t, framings);
  },

  async "corpus: no request with malformed, unusual, huge or many header fields smuggles another request"(
    t: Tools,
  ): Promise<void> {
    rfc("9110-2.3-defensive", "9110-9.3.6-port", "9112-2.2-leading-space");
    await tryAll(t, heads);
  },

  async "corpus: an ambiguous response is refused, or read in one of the allowed ways"(
    t: Tools,
  ): Promise<void> {
    rfc(
      "9110-5.6.3-bad-space",
      "9112-5.1-space-response",
      "9112-5.2-fold-response",
      "9112-6.3-surplus",
      "9112-7.1-large-sizes",
      "9112-7.1-parameters",
    );
    const { upstream } = t;
    upstream.script = async (call) => {
      // Answer only when all requests have arrived, so that each request uses a separate connection.
      await until(() => upstream.calls.length >= answers.length, "all requests");
      call.write(answers[Number(call.target.slice(1))]?.bytes ?? "");
      call.close();
    };
    const wrong = await Promise.all(answers.map((entry, at) => tryAnswer(t, entry, at)));
    expect(wrong.flat()).toEqual([]);
    // No bytes of the hostile responses may be left on a connection for the next requests.
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
