/** Runs rows of the scoreboard against a proxy, and says what failed, with the bytes on both sides. */
import { mkdtempSync, rmSync } from "node:fs";
import { connect as dial } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import type { Host } from "../hosts/_host.ts";
import { type Answer, type Client, connect, ResponseHead } from "../helpers/client.ts";
import { impatiently } from "../helpers/impatience.ts";
import { Upstream } from "../helpers/upstream.ts";
import { until } from "../helpers/wait.ts";
import { request } from "../helpers/wire.ts";
import { type Test, themes, type Tools } from "../suite/_suite.ts";
import type { Contestant, Running } from "./contestant.ts";
import { type Passage, Recorder } from "./recorder.ts";
import type { Row, RowName } from "./rows.ts";
import { rules } from "./rules.ts";

/** What a row has shown about a proxy. */
export type Outcome =
  | "passed"
  /** A rule that cannot be tested, because the proxy lacks what the rule is about. */
  | "lacking"
  | Failure;

export interface Failure {
  readonly why: string;
  readonly passages: readonly Passage[];
  /** Whether the process of the proxy has ended. */
  readonly crashed?: true;
  /** The hardenings with which the row passes. */
  hardened?: Record<string, "passed">;
}

export const isFailure = (outcome: Outcome | undefined): outcome is Failure =>
  typeof outcome === "object";

/** The time limit in milliseconds of a whole row. */
const LONGEST = 60_000;

const tests: ReadonlyMap<string, Test> = new Map(
  [rules, ...Object.values(themes)].flatMap((theme) => Object.entries<Test>(theme)),
);

/** A proxy in front of an upstream, with what is needed to run rows against it. */
class Run {
  readonly #contestant: Contestant;
  readonly #hardening: string | undefined;
  readonly #upstream = new Upstream({ acceptsHttp10: true });
  readonly #folder = mkdtempSync(join(tmpdir(), "compare-"));
  readonly #clients: Client[] = [];
  #running: Running | undefined;
  #recorder: Recorder | undefined;
  /** The bytes on both sides of the proxy in the last test. */
  passages: readonly Passage[] = [];

  constructor(contestant: Contestant, hardening: string | undefined) {
    this.#contestant = contestant;
    this.#hardening = hardening;
  }

  /** Starts the proxy, or starts it again. @throws if it does not forward a plain request */
  async start(): Promise<Running> {
    if (this.#running) await this.#stopProxy();
    else await this.#upstream.listen();
    const { port: upstream } = this.#upstream;
    const hardening = this.#hardening !== undefined && { hardening: this.#hardening };
    const setup = { upstream, folder: this.#folder, ...hardening };
    this.#running = await this.#contestant.start(setup);
    this.#recorder = new Recorder(this.#running.port, upstream);
    const plain = await this.run(async (t) => {
      expect((await t.ask(request("GET", "/"))).status).toBe(200);
    });
    if (plain) throw new Error(`${this.#contestant.name} forwards no plain request: ${plain.why}`);
    return this.#running;
  }

  async #stopProxy(): Promise<void> {
    this.#recorder?.stop();
    await this.#running?.stop();
  }

  async stop(): Promise<void> {
    await this.#stopProxy();
    await this.#upstream.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /**
   * Runs a test.
   * @param patience the time limit of each wait in milliseconds
   * @returns undefined if it has passed
   */
  async run(body: Test, patience: number = LONGEST): Promise<Failure | undefined> {
    const upstream = this.#upstream;
    this.#recorder?.clear();
    try {
      const over = AbortSignal.timeout(LONGEST);
      const late = new Promise<never>((_, reject) => {
        over.onabort = () => reject(new Error(`the test has not ended within ${LONGEST} ms`));
      });
      await impatiently(patience, () => Promise.race([body(this.#tools()), late]));
      expect(upstream.faults, "bytes that are no HTTP at the upstream").toEqual([]);
      return undefined;
    } catch (error) {
      const passages = this.#recorder?.passages ?? [];
      const crashed = !(await this.#isAlive()) && { crashed: true as const };
      return { why: describeError(error), passages, ...crashed };
    } finally {
      this.passages = this.#recorder?.passages ?? [];
      for (const client of this.#clients.splice(0)) client.leave("FIN");
      await upstream.reset();
    }
  }

  async #isAlive(): Promise<boolean> {
    const socket = dial(this.#running?.port ?? 0, "127.0.0.1");
    return new Promise((resolve) => {
      socket.on("connect", () => resolve(true)).on("error", () => resolve(false));
    }).finally(() => socket.destroy()) as Promise<boolean>;
  }

  /** The tools of the suite for any proxy. The proxy may do all that the RFCs allow. */
  #tools(): Tools {
    const upstream = this.#upstream;
    const port = this.#running?.port ?? 0;
    const isRefused = ({ status }: Answer): boolean =>
      status === 0 || (status >= 400 && upstream.calls.every(({ state }) => state !== "complete"));
    const tools: Tools = {
      host: { name: "node", port: () => port, rss: () => 0 } as unknown as Host,
      upstream,
      connect: async (setup = "default") => {
        if (setup !== "default") throw new Error(`the row needs the setup ${setup} of Fetchway`);
        const client = patient(await connect(port));
        this.#clients.push(client);
        return client;
      },
      async ask(bytes, setup) {
        const client = await tools.connect(setup);
        client.send(bytes);
        return client.read(/^\w+/.exec(Buffer.from(bytes).toString("latin1"))?.[0]);
      },
      refusedOrOne(answer) {
        if (isRefused(answer)) return undefined;
        expect(answer.status).toBe(200);
        expect(upstream.calls).toHaveLength(1);
        return upstream.calls[0];
      },
      expectGatewayError: (answer) => expect(answer.status).toBeGreaterThanOrEqual(500),
      mayRefuse: (answer) => answer.status === 502 || isRefused(answer),
      async unfinished() {
        const isThere = (): boolean => (upstream.calls[0]?.length ?? 0) > 0;
        await until(isThere, "the first bytes of the body", 1000).catch(() => {});
        return upstream.calls[0];
      },
    };
    return tools;
  }
}

/**
 * Makes a client return a response with the status 0 if the proxy closes the connection without a byte. Such a close
 * refuses a request as well as an error response does, except where a rule demands a status.
 */
function patient(client: Client): Client {
  const readHead = client.readHead.bind(client);
  const readBody = client.readBody.bind(client);
  client.readHead = (limit) => {
    const head = readHead(limit).catch((error: unknown) => {
      if (!String(error).endsWith('closed before a response head, after ""')) throw error;
      return Object.assign(new ResponseHead(Buffer.from("HTTP/1.1 000 ")), { interim: [] });
    });
    head.catch(() => {});
    return head;
  };
  const read = client.read.bind(client);
  client.read = (method) => {
    const answer = read(method);
    // A test that has already failed does not await `answer`, whose rejection would then be unhandled.
    answer.catch(() => {});
    return answer;
  };
  client.readBody = async (head, ...rest) => {
    if (head.status !== 0) return readBody(head, ...rest);
    const nothing = { body: Buffer.alloc(0), text: "", length: 0, sha256: "", trailers: [] };
    return Object.assign(head, nothing, { cut: true });
  };
  return client;
}

/** Returns the message of an error in one line, without colours and ports. */
function describeError(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  // oxlint-disable-next-line no-control-regex -- the escapes of colours
  const plain = text.replaceAll(/\x1b\[[\d;]*m/g, "").replaceAll(/127\.0\.0\.1:\d+/g, "upstream");
  return plain.replaceAll(" // Object.is equality", "").replaceAll(/\s+/g, " ").slice(0, 300);
}

/** The outcomes of the rows of a proxy. */
export interface Outcomes {
  readonly version: string;
  readonly configuration: string;
  readonly rows: Readonly<Record<string, Outcome>>;
}

/**
 * Runs rows against a proxy. A row that fails runs again with the proxy started anew, so that no row can make another one
 * fail. The outcome is a failure only if each attempt at the row fails.
 * @param patience the time limit of each wait in milliseconds, for each attempt
 * @param onRow called after each row with its outcome, and with the bytes on both sides
 */
export async function runRows(
  contestant: Contestant,
  rows: readonly Row[],
  {
    hardening,
    patience = [2000, 4000],
    onRow = () => {},
  }: {
    hardening?: string | undefined;
    patience?: readonly number[];
    onRow?: (row: Row, outcome: Outcome, passages: readonly Passage[]) => void;
  } = {},
): Promise<Outcomes> {
  const run = new Run(contestant, hardening);
  const outcomes: Partial<Record<RowName, Outcome>> = {};
  try {
    const { version, configuration } = await run.start();
    for (const row of rows) {
      const outcome =
        row.needs && isFailure(outcomes[row.needs])
          ? "lacking"
          : await runOften(run, row, patience);
      outcomes[row.test] = outcome;
      onRow(row, outcome, run.passages);
    }
    return { version, configuration, rows: outcomes as Record<string, Outcome> };
  } finally {
    await run.stop();
  }
}

async function runOften(
  run: Run,
  row: Row,
  [patience, ...further]: readonly number[],
): Promise<Outcome> {
  const failure = await run.run(tests.get(row.test) as Test, patience);
  if (failure === undefined) return "passed";
  if (further.length > 0 || failure.crashed) await run.start();
  return further.length > 0 ? runOften(run, row, further) : failure;
}
