/** The short forms of a target on the command line. */

const PORT = /^:?(\d+)(\/.*)?$/s;
/**
 * A host name, an IPv4 address or an IPv6 address in brackets, with a port. A host that has only digits is excluded, because
 * URL parsers read it as an IPv4 address.
 */
const HOST_AND_PORT = /^(?!\d+:)((?:[\w-]+(?:\.[\w-]+)*|\[[\da-f:.]+\])):(\d+)(\/.*)?$/is;

/** Whether a text is a target: a URL, or one of the short forms. */
export function isTargetText(text: string): boolean {
  return /^(?:https?:\/\/|unix:[/\\])/.test(text) || expandTarget(text) !== text;
}

/**
 * Expands the short forms of a target: a port of this machine (`4000`, `:4000`), on any of its loopback addresses, and a host
 * with a port (`localhost:4000`). Other texts are returned as they are.
 */
export function expandTarget(text: string): string {
  const [, own, base = ""] = PORT.exec(text) ?? [];
  if (own !== undefined && isPort(own)) return `http://localhost:${own}${base}`;
  const [, host, port, path = ""] = HOST_AND_PORT.exec(text) ?? [];
  if (host === undefined || port === undefined || !isPort(port)) return text;
  return `${port === "443" ? "https" : "http"}://${host}:${port}${path}`;
}

function isPort(digits: string): boolean {
  return Number(digits) > 0 && Number(digits) < 65_536;
}

/** Returns what to write instead of a word that is a target only for other programs; undefined for any other word. */
export function explainTarget(word: string): string | undefined {
  const [, digits, port] = /^(?:https?:\/\/)?(\d+):(\d+)(?![.:\d])/.exec(word) ?? [];
  if (port !== undefined) {
    return `${digits} is no host: to listen on port ${digits}, write fetchway ${port} --port ${digits}`;
  }
  // nginx writes `http://unix:/path:/uri`.
  const [, socket] = /^(?:https?:\/\/unix:)?(\/.*?\.sock(?:et)?):?\/?$/.exec(word) ?? [];
  if (socket !== undefined) return `write unix:${socket}`;
  if (/^(?:\.{0,2}\/|\.{1,2}$)/.test(word)) {
    return "it serves no files; see docs/coming-from-nginx.md";
  }
  const words = word.split(",");
  return words.length > 1 && words.every(isTargetText) ? "separate targets by spaces" : undefined;
}
