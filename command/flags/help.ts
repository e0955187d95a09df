import { type Flag, flags } from "./flags.ts";

/**
 * The text of `--help`: the usual flags. It fits on a screen of 24 lines of 80 characters, with one line left for the prompt.
 */
const USUAL = `fetchway <target> [flags]    forwards every HTTP request to the target, which is
                             4000, localhost:4000, http(s)://… or unix:/path

Routes
      --route </path>=<target>  another target for a path; flags may follow
      --config <file>           routes and options: a .mjs, .ts or .json file
      --demo                    a small upstream, where no target is given
      --inspect <request>       show what a request would become, and why
Server
  -p, --port <number>           0 takes a free one (default 3000)
      --host <address>          0.0.0.0 for all addresses (default 127.0.0.1)
      --cert <file>             serve HTTPS; with --key <file>
      --log <form>              pretty, common, combined, json or off
      --admin <port>            a status page, with metrics and health checks
Requests
      --header "name: value"    set a field of the request; "name:" deletes it
      --no-change-origin        send the client's Host, not the target's
      --strip-prefix </path>    remove this prefix from the path
      --timeout <time>          until response headers, like 10s (default 60000)
      --insecure                accept any certificate of an upstream
      --cors                    let pages of all origins read responses

All flags: fetchway --help all`;

const USAGE = `fetchway <target> [flags]    forwards every HTTP request to the target, which is
                             4000, localhost:4000, http(s)://… or unix:/path
fetchway <target> <target>   several upstreams share the requests
fetchway --demo              the target is a small upstream to try things on
fetchway replay <file.har>   sends what --record has written; see replay --help

<time> is in milliseconds, or 500ms, 10s, 2m, 1h; <size> in bytes, or 512k, 10mb`;

/** Renders what `--help` shows: the usual flags, or all. */
export function renderHelp(isAll: boolean): string {
  return isAll ? renderAll() : USUAL;
}

/** Renders all flags by heading. */
function renderAll(): string {
  const width = Math.max(...flags.map((flag) => renderUsage(flag).length));
  const groups = Map.groupBy(flags, ({ heading }) => heading);
  const sections = Array.from(groups, ([heading, group]) => {
    const lines = group.map(
      (flag) => `  ${renderUsage(flag).padEnd(width)}  ${flag.help}${renderDefault(flag)}`,
    );
    return `${heading}\n${lines.join("\n")}`;
  });
  return `${USAGE}\n\n${sections.join("\n\n")}`;
}

function renderUsage({ name, short, value, negatable, choices }: Flag): string {
  const long = `--${negatable ? "[no-]" : ""}${name}`;
  const shown = choices.length > 0 ? ` [${choices.join("|")}]` : value && ` ${value}`;
  return `${short === undefined ? "    " : `-${short}, `}${long}${shown ?? ""}`;
}

function renderDefault({ fallback }: Flag): string {
  return fallback === undefined || fallback === false ? "" : ` (default ${String(fallback)})`;
}
