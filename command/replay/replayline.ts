/** Parses the command line of `fetchway replay`. */
import { parseArgs } from "node:util";
import { quoteInput } from "#fetchway/options";
import { TOKEN } from "#fetchway/requests";
import { parseTarget, type Upstream } from "#fetchway/transport";
import { parseDuration } from "../flags/duration.ts";
import { UsageError } from "../flags/read.ts";
import { expandTarget, isTargetText } from "../flags/shorttarget.ts";

export const REPLAY_HELP = `fetchway replay <file.har> --against <target> [flags]    sends requests that
                                --record has written, and compares the responses

      --against <target>        4000, localhost:4000, http(s)://… or unix:/path
      --from <origins>          only requests to these, such as http://a.example
      --methods <GET,POST>      what to send; by default GET,HEAD,OPTIONS only,
                                because other methods may change the target
  -H, --header "name: value"    set a field of all requests; "name:" deletes it
      --query "name=value"      set a parameter that the file has as REDACTED
      --ignore <a,b>            further response fields that may differ
      --concurrency <number>    requests at the same time (default 1)
      --pace                    send no request earlier than it was recorded
      --timeout <time>          for each response, like 10s (default 30000)
      --insecure                accept any certificate of the target
      --json                    report as JSON
  -h, --help                    show this

Exit code: 0 all responses are equal, 1 some differ, 2 nothing was compared`;

/** The parsed command line of `fetchway replay`. */
export interface ReplayLine {
  readonly file: string;
  readonly target: Upstream;
  /** The recorded origins whose requests are sent; undefined if the file must have only one. */
  readonly from: readonly string[] | undefined;
  readonly methods: readonly string[];
  /** Request fields to set, by lower-case name. The value null removes the field. */
  readonly fields: ReadonlyMap<string, readonly [name: string, value: string | null]>;
  readonly query: ReadonlyMap<string, string>;
  /** The names of response fields that are not compared, in addition to those of `IGNORED`, in lower case. */
  readonly ignored: readonly string[];
  readonly concurrency: number;
  readonly isPaced: boolean;
  readonly timeout: number;
  readonly asJson: boolean;
}

/** @throws UsageError for a wrong argument or option */
export function readReplayLine(args: readonly string[]): ReplayLine | "help" {
  const { values, positionals } = parseReplayArgs(args);
  if (values.help) return "help";
  const [file, ...others] = positionals;
  if (file === undefined) throw new UsageError("replay: name a file, such as traffic.har");
  if (others.length > 0)
    throw new UsageError(`replay: ${quoteInput(others[0])} is one file too many`);
  const { concurrency, timeout } = values;
  if (!/^[1-9]\d{0,2}$/.test(concurrency)) {
    throw new UsageError("--concurrency: use a whole number from 1 to 999");
  }
  const milliseconds = parseDuration(timeout) ?? (/^\d+$/.test(timeout) ? Number(timeout) : 0);
  if (milliseconds === 0) throw new UsageError("--timeout: use milliseconds from 1, or 10s");
  return {
    file,
    target: readTarget(values.against, values.insecure),
    from:
      values.from === undefined
        ? undefined
        : readList(values.from).map((origin) => origin.replace(/\/$/, "")),
    methods: readList(values.methods).map((method) => method.toUpperCase()),
    fields: new Map(values.header.map(readField)),
    query: new Map(values.query.map(readParameter)),
    ignored: readList(values.ignore).map((name) => name.toLowerCase()),
    concurrency: Number(concurrency),
    isPaced: values.pace,
    timeout: milliseconds,
    asJson: values.json,
  };
}

function parseReplayArgs(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        against: { type: "string" },
        from: { type: "string" },
        methods: { type: "string", default: "GET,HEAD,OPTIONS" },
        header: { type: "string", short: "H", multiple: true, default: [] },
        query: { type: "string", multiple: true, default: [] },
        ignore: { type: "string", default: "" },
        concurrency: { type: "string", default: "1" },
        pace: { type: "boolean", default: false },
        timeout: { type: "string", default: "30000" },
        insecure: { type: "boolean", default: false },
        json: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    });
  } catch (error) {
    const [first = ""] = (error as Error).message.split(". ");
    throw new UsageError(`replay: ${first}; see fetchway replay --help`);
  }
}

function readList(text: string): string[] {
  const names = text.split(",").map((name) => name.trim());
  return names.filter((name) => name !== "");
}

function readTarget(against: string | undefined, isInsecure: boolean): Upstream {
  if (against === undefined)
    throw new UsageError("replay: say where to send it, by --against 4001");
  const label = `--against ${quoteInput(against)}`;
  if (!isTargetText(against)) throw new UsageError(`${label}: use a URL, or a port`);
  try {
    const url = expandTarget(against);
    const parsed = parseTarget(isInsecure ? { url, tls: { rejectUnauthorized: false } } : url);
    if (parsed.query === "") return parsed;
  } catch (error) {
    throw new UsageError(`${label}: ${(error as Error).message.replace(/^fetchway: /, "")}`);
  }
  throw new UsageError(`${label}: leave the query out`);
}

/**
 * Fields that are neither copied from the recording nor accepted by `--header`, because the transport writes those that the new
 * request needs.
 */
export const OF_TRANSPORT: RegExp =
  /^(?::.*|connection|content-length|expect|keep-alive|proxy-connection|te|trailer|transfer-encoding|upgrade)$/;

function readField(text: string): [string, [name: string, value: string | null]] {
  const at = text.indexOf(":");
  const name = text.slice(0, Math.max(0, at));
  const value = text.slice(at + 1).trim();
  if (!TOKEN.test(name) || !isFieldValue(value)) {
    throw new UsageError('--header: write it as "name: value", or as "name:" to delete it');
  }
  const lower = name.toLowerCase();
  if (OF_TRANSPORT.test(lower)) {
    throw new UsageError(
      `--header: leave ${lower} out, because replay writes it where it is needed`,
    );
  }
  return [lower, [name, value === "" ? null : value]];
}

function readParameter(text: string): [string, string] {
  const [, name = "", value = ""] = /^([^=]+)=([!-~]*)$/.exec(text) ?? [];
  if (name === "") throw new UsageError('--query: write it as "name=value", as in a URL');
  return [name, value];
}

/** Whether a text can be sent as the value of a field (RFC 9110 §5.5). */
export function isFieldValue(text: string): boolean {
  return /^[\t\u0020-\u007e\u0080-\u00ff]*$/.test(text);
}
