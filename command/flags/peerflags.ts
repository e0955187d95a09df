/** The flags of other commands that users may try, and what to write instead. */
import { isTargetText } from "./shorttarget.ts";

/** What to write instead of a flag of another command. */
export interface PeerFlag {
  /** The advice, after "there is no --name: ". */
  readonly advice: string;
  /** Whether the flag has a value, so that the word after the flag is not the target. */
  readonly takesValue: boolean;
  readonly isTarget: boolean;
}

const TARGET = "write the target without a flag: fetchway http://127.0.0.1:4000";
const ROUTE = "use --route /path=http://127.0.0.1:4000";
const AUTHORIZATION = 'use --header "authorization: …"';

/**
 * The advice for flags that take a value, by the flags' names: those of http-server, local-cors-proxy, Caddy's
 * `reverse-proxy`, vite, ngrok, mitmproxy, http-proxy, http-proxy-middleware, nginx and curl. Advice that begins with `--`
 * means "use that flag".
 */
const WITH_VALUE: Readonly<Record<string, string>> = {
  "--listen -l --listen-port --local-port --http-port --from": "--port",
  "-P": "--port",
  "--bind -b --address -a --hostname --ip --listen-host --interface --addr": "--host",
  "--to --upstream --proxy --backend --target --url --proxy-url --proxyUrl --remote --forward --forward-to":
    TARGET,
  "--destination --dest --origin --server --proxy-pass": TARGET,
  "-t": `to test a config, use --config <file> --inspect /; ${TARGET}`,
  "--proxy-partial --proxyPartial --strip-path --strip-path-prefix --uri-strip": "--strip-prefix",
  "--prefix --path --location --context": ROUTE,
  "--rewrite --path-filter": "--path-rewrite",
  "--auto-rewrite --host-rewrite --protocol-rewrite --proxy-redirect": "--location-rewrite",
  "--cookie-domain-rewrite --proxy-cookie-domain": "--cookie-domain",
  "--cookie-path-rewrite --proxy-cookie-path": "--cookie-path",
  "--headers --header-up --add-header --request-header-add --proxy-set-header": "--header",
  "--request-header-remove --remove-header --hide-header": "--filter-headers",
  "--set-host --upstream-host": "--host-header",
  "--auth --user -u --basic-auth --username --password": AUTHORIZATION,
  "--proxy-timeout --read-timeout --response-timeout --proxy-read-timeout": "--timeout",
  "--proxy-connect-timeout --dial-timeout": "--connect-timeout",
  "--grace-period --shutdown-timeout --drain-timeout": "--stop-timeout",
  "--max-body-size --client-max-body-size --body-size --limit --max-body --request-body-limit":
    "--body-limit",
  "--connections --max-conns": "--max-sockets",
  "--max-redirects --max-redirs": "--follow-redirects",
  "--accept-proxy": "--proxy-protocol",
  "--send-proxy --send-proxy-v2": "--send-proxy-protocol",
  "--trusted-proxies --trusted-proxy --forwarded-allow-ips --set-real-ip-from": "--trust-proxy",
  "--socket --unix --unix-socket --uds":
    "write the target as unix:/path/to/socket; to listen on one, use --host unix:/path/to/socket",
  "--retries --proxy-retries": "--retry",
  "--lb-policy --load-balancing --balance --strategy --algorithm": "--policy",
  "--health-check --health-path --health-uri --healthcheck": "--check",
  "--config-file --conf -c -f": "--config",
  "--key-file --tls-key --ssl-key --keyfile --private-key -K": "--key",
  "--cert-file --tls-cert --ssl-cert --certfile --certificate -C": "--cert",
  "--cacert --ca-file --ca-cert --root-ca --tls-trusted-ca-certs": "--ca",
  "--metrics --metrics-port --admin-port --status-port --dashboard": "--admin",
  "--log-format --log-level --access-log --access-logfile --loglevel": "--log",
};

const WITHOUT_VALUE: Readonly<Record<string, string>> = {
  "--change-host-header --rewrite-host": "the target's Host is sent by default",
  "--preserve-host --keep-host --no-change-host-header": "--no-change-origin",
  "--ws --websocket --websockets": "WebSockets are carried by default",
  "--x-forwarded --forwarded --xforward": "--xfwd",
  "--no-secure --no-verify --no-check-certificate --skip-verify --ssl-insecure --tls-insecure-skip-verify -k":
    "--insecure",
  "--secure": "certificates of https: targets are checked by default",
  "--ssl --https --tls -S":
    "to serve HTTPS, use --cert and --key; an upstream with TLS is https://…",
  "--follow --follow-redirect -L --location-trusted": "--follow-redirects",
  "--disable-redirects": "redirects are passed on by default",
  "--silent -s --quiet -q --no-logs": "--log off",
  "--verbose -V --debug --access-logs": "requests are logged by default; see --log",
  "--credentials --cors-credentials": "--cors",
  "--dry-run": "--inspect",
  "--daemon -d --daemonize --detach --background":
    "it stays in the foreground; docs/deploy.md shows it as a service",
  "--open -o": "open the address that the command prints",
  "--watch -w --reload": "the file of --config is reloaded when it changes",
  "--strict-port --strictPort": "a port in use is an error by default",
  "--public --expose --allow-external": "--host 0.0.0.0",
};

const advices: Map<string, PeerFlag> = new Map();
for (const [table, takesValue] of [
  [WITH_VALUE, true],
  [WITHOUT_VALUE, false],
] as const) {
  for (const [names, given] of Object.entries(table)) {
    const advice = given.startsWith("--") ? `use ${given}` : given;
    for (const name of names.split(" ")) {
      advices.set(name, { advice, takesValue, isTarget: advice.endsWith(TARGET) });
    }
  }
}

/** The advice for the flags of other commands, by the spelling of the flag. */
export const peerFlags: ReadonlyMap<string, PeerFlag> = advices;

/** Matches the advice for a flag that says where to listen. */
const LISTENING = /^use --(?:port|host)$/;

/** Returns what to write instead of a flag of another command, given the flag's value. */
export function adviseOn({ advice, isTarget }: PeerFlag, value: string | undefined): string {
  if (value !== undefined && LISTENING.test(advice)) return adviseToListen(value) ?? advice;
  if (!isTarget || value === undefined || !isTargetText(value)) return advice;
  return `write the target without a flag: fetchway ${value}`;
}

/** Returns how to listen on a socket, or on an address and a port; undefined for any other text. */
function adviseToListen(value: string): string | undefined {
  const [socketPath] = /^(?:unix:)?\/.+/.exec(value) ?? [];
  if (socketPath !== undefined) return `use --host unix:${socketPath.replace(/^unix:/, "")}`;
  const [, host, port] = /^(?:([^:/]*|\[[^/]*\]):)?(\d+)$/.exec(value) ?? [];
  if (port === undefined) return undefined;
  return host ? `use --host ${host} --port ${port}` : `use --port ${port}`;
}
