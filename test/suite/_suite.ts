/** The black-box suite: one list of tests, which runs against a real server on every host. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect, type Answer, type Client } from "../helpers/client.ts";
import { type Gap, gaps } from "./gaps/gaps.ts";
import { startHost, type Host } from "../hosts/_host.ts";
import type { HostName } from "../hosts/_hosts.ts";
import { hostVersion, isInRange } from "../hosts/_node.ts";
import type { SetupName } from "../hosts/_setups.ts";
import type { Call } from "../helpers/link.ts";
import { Upstream } from "../helpers/upstream.ts";
import { impatiently } from "../helpers/impatience.ts";
import { until } from "../helpers/wait.ts";
import { aborts } from "./aborts.ts";
import { advisedFields } from "./advisories.fields.ts";
import { advisedFraming } from "./advisories.framing.ts";
import { advisedRouting } from "./advisories.routing.ts";
import { apps } from "./apps.ts";
import { bodies } from "./bodies.ts";
import { changes } from "./changes.ts";
import { conformance } from "./conformance.ts";
import { encodings } from "./encodings.ts";
import { failures } from "./failures.ts";
import { faulty } from "./faults.ts";
import { firstByte } from "./firstbyte.ts";
import { forwarding } from "./forwarding.ts";
import { frames } from "./frames.ts";
import { framing } from "./framing.ts";
import { headers } from "./headers.ts";
import { hooks } from "./hooks.ts";
import { hops } from "./hops.ts";
import { hostile } from "./hostile.ts";
import { interim } from "./interim.ts";
import { large } from "./large.ts";
import { lenience } from "./lenience.ts";
import { methods } from "./methods.ts";
import { observation } from "./observation.ts";
import { options } from "./options.ts";
import { paths } from "./paths.ts";
import { pipelining } from "./pipelining.ts";
import { redirects } from "./redirects.ts";
import { responses } from "./responses.ts";
import { retries } from "./retries.ts";
import { rewriting } from "./rewriting.ts";
import { routes } from "./routes.ts";
import { streams } from "./streams.ts";
import { timeouts } from "./timeouts.ts";
import { truncation } from "./truncation.ts";
import { trailers } from "./trailers.ts";
import { trust } from "./trust.ts";
import { upgrades } from "./upgrades.ts";

/** What a test gets. After the test, its connections are closed and the upstream is reset. */
export interface Tools {
  host: Host;
  upstream: Upstream;
  connect(setup?: SetupName): Promise<Client>;
  /** Sends the bytes of a request on a new connection, and reads the response. */
  ask(bytes: string | Uint8Array, setup?: SetupName): Promise<Answer>;
  /**
   * Expects either a refusal without any request at the upstream, or a 200 and exactly one well-formed request there.
   * @returns that request; undefined after a refusal
   */
  refusedOrOne(answer: Answer, refusals?: number[]): Call | undefined;
  /**
   * Expects an error response that the proxy itself makes. Fetchway's has this status, this error type of RFC 9209, and no
   * address; another proxy may choose another status of 5xx.
   */
  expectGatewayError(answer: Answer, status: number, type?: RegExp): void;
  /** Whether a proxy other than Fetchway has refused the request, where the RFCs allow that. Always false for Fetchway. */
  mayRefuse(answer: Answer): boolean;
  /**
   * Waits for the first bytes of a body whose client has not sent all of it.
   * @returns the request at the upstream; undefined if the proxy reads a whole request before it forwards it, which
   * Fetchway never does
   */
  unfinished(): Promise<Call | undefined>;
}

export type Test = (tools: Tools) => Promise<void>;

export const themes: Record<string, Record<string, Test>> = {
  framing,
  lenience,
  conformance,
  hostile,
  forwarding,
  trust,
  hops,
  pipelining,
  headers,
  encodings,
  changes,
  paths,
  bodies,
  responses,
  interim,
  trailers,
  methods,
  streams,
  firstByte,
  observation,
  options,
  hooks,
  routes,
  timeouts,
  failures,
  faulty,
  truncation,
  aborts,
  redirects,
  retries,
  rewriting,
  apps,
  upgrades,
  frames,
  advisedFields,
  advisedRouting,
  advisedFraming,
  large,
};

/** The titles of all tests. A gap names its test by the title. */
export type TestName =
  | keyof typeof observation
  | keyof typeof changes
  | keyof typeof framing
  | keyof typeof lenience
  | keyof typeof conformance
  | keyof typeof hostile
  | keyof typeof forwarding
  | keyof typeof trust
  | keyof typeof hops
  | keyof typeof pipelining
  | keyof typeof headers
  | keyof typeof encodings
  | keyof typeof paths
  | keyof typeof bodies
  | keyof typeof responses
  | keyof typeof interim
  | keyof typeof trailers
  | keyof typeof methods
  | keyof typeof streams
  | keyof typeof firstByte
  | keyof typeof options
  | keyof typeof hooks
  | keyof typeof routes
  | keyof typeof timeouts
  | keyof typeof failures
  | keyof typeof faulty
  | keyof typeof truncation
  | keyof typeof aborts
  | keyof typeof redirects
  | keyof typeof retries
  | keyof typeof rewriting
  | keyof typeof apps
  | keyof typeof upgrades
  | keyof typeof frames
  | keyof typeof advisedFields
  | keyof typeof advisedRouting
  | keyof typeof advisedFraming
  | keyof typeof large;

/** Themes that the `fetch-*` hosts skip unless `ALL_THEMES` is set, because these themes take long there. */
const LONG: ReadonlySet<string> = new Set(process.env["ALL_THEMES"] ? [] : ["large"]);

/**
 * The time limit in milliseconds of each wait in the test of a gap. Most of these tests fail because the event that they wait
 * for never comes; on other hosts it comes within some milliseconds.
 */
const GAP_TIMEOUT = 1000;

export function addTests(name: HostName): void {
  let host: Host;
  const upstream = new Upstream();
  const clients: Client[] = [];

  const tools: Omit<Tools, "host"> = {
    upstream,
    async connect(setup = "default") {
      const client = await connect(host.port(setup));
      clients.push(client);
      return client;
    },
    async ask(bytes, setup) {
      const client = await tools.connect(setup);
      client.send(bytes);
      return client.read(/^\w+/.exec(Buffer.from(bytes).toString("latin1"))?.[0]);
    },
    refusedOrOne(answer, refusals = [400, 505]) {
      if (refusals.includes(answer.status)) {
        expect(upstream.calls).toHaveLength(0);
        return undefined;
      }
      expect(answer.status).toBe(200);
      expect(upstream.calls).toHaveLength(1);
      return upstream.calls[0];
    },
    expectGatewayError(answer, status, type = /[a-z_]+/) {
      expect(answer.status).toBe(status);
      expect(answer.get("proxy-status")).toMatch(new RegExp(`^fetchway; error=${type.source}$`));
      expect(answer.get("content-type")).toMatch(/^text\/plain/);
      const everything = answer.bytes.toString("latin1") + answer.text;
      expect(everything).not.toMatch(/127\.0\.0\.1|localhost|ECONN|EPIPE|UND_ERR|HPE_|socket/i);
      expect(everything).not.toContain(`:${upstream.port}`);
    },
    mayRefuse: () => false,
    async unfinished() {
      const call = await upstream.call();
      await until(() => call.length > 0, "the first bytes of the body");
      return call;
    },
  };

  /**
   * Runs a test, and then checks two rules that hold for all tests: the upstream received valid HTTP, and the host printed no
   * error.
   */
  async function run(body: Test): Promise<void> {
    try {
      await body({ ...tools, host });
    } catch (error) {
      // A crash of the host first shows as a broken connection. Its message on stderr arrives a little later.
      await until(() => host.exited(), "exit", 300).catch(() => {});
      const complaints = host.complaints();
      if (complaints && error instanceof Error) error.message += `\nThe host: ${complaints}`;
      throw error;
    }
    expect(upstream.faults).toEqual([]);
    expect(host.complaints()).toBe("");
  }

  async function runGap(
    body: Test,
    title: string,
    { reason, sometimes, prints = "" }: Gap,
  ): Promise<void> {
    const failed = await impatiently(GAP_TIMEOUT, () => body({ ...tools, host })).then(
      () => upstream.faults.length > 0,
      () => true,
    );
    // The test of a gap may fail, but the host must not crash or print an unexpected message.
    let printed = "";
    // A message that the host prints may arrive after the test has failed.
    const hasPrinted = (): boolean => (printed += host.complaints()).length >= prints.length;
    await until(hasPrinted, "the host's message").catch(() => {});
    expect(printed).toBe(prints);
    if (!failed && !sometimes) {
      throw new Error(
        `Closed gap: "${title}" passes on ${name} (${reason}). Remove it from test/suite/gaps/.`,
      );
    }
  }

  beforeAll(async () => {
    await upstream.listen();
    host = await startHost(name, upstream.url);
  });

  afterEach(async () => {
    for (const client of clients.splice(0)) client.leave("FIN");
    await upstream.reset();
    // If a test has crashed the host, start a new one, so that the following tests do not fail too.
    if (host.exited()) host = await startHost(name, upstream.url);
  });

  afterAll(async () => {
    await host.stop();
    await upstream.stop();
  });

  const titles = Object.values(themes).flatMap((tests) => Object.keys(tests));
  if (new Set(titles).size < titles.length) throw new Error("two tests have the same title");

  const unknown = gaps.find((gap) => gap.host === name && !titles.includes(gap.test));
  if (unknown) throw new Error(`no such test: the gap "${unknown.test}"`);

  // How the runtimes' own `fetch` handles connections depends on timing and load, so tests on the `fetch-*` hosts are retried.
  const isFetch = name.startsWith("fetch-");
  const settings = { timeout: 90_000, retry: isFetch ? 2 : 0 };
  for (const [theme, tests] of Object.entries(themes)) {
    if (isFetch && LONG.has(theme)) continue;
    describe(theme, () => {
      for (const [title, body] of Object.entries(tests)) {
        const gap = gaps.find(
          ({ host: on, test: of, node }) =>
            on === name && of === title && (node === undefined || isInRange(hostVersion, node)),
        );
        if (gap) {
          test(`gap: ${title}`, settings, () => runGap(body, title, gap));
        } else {
          test(title, settings, () => run(body));
        }
      }
    });
  }

  test("after all tests, the process of the host is alive and has printed nothing", async () => {
    await run(async (t) => {
      expect((await t.ask("GET / HTTP/1.1\r\nHost: proxy.test\r\n\r\n")).status).toBe(200);
    });
    expect(host.exited()).toBe(false);
  });
}
