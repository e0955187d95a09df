/** Writes configurations with which workerd serves one Worker, on one socket or on several named sockets. */

export interface WorkerdConfig {
  /** The file name of the bundled Worker, which is in the folder of the configuration. */
  module?: string;
  flags?: readonly string[];
  /** The port of each named socket, or 0 for a free port. Each socket serves its own instance of the Worker. */
  sockets?: Readonly<Record<string, number>>;
  /** Returns the text bindings of the Worker behind the named socket. */
  vars?: (socket: string) => Readonly<Record<string, string>>;
  /** The names of service bindings through which the Worker reaches the network. */
  services?: readonly string[];
  /** Names of service bindings to the Worker itself. */
  own?: readonly string[];
}

export function toCapnp({
  module = "worker.js",
  flags = ["enable_request_signal"],
  sockets = { http: 0 },
  vars = () => ({}),
  services = [],
  own = [],
}: WorkerdConfig): string {
  const names = Object.keys(sockets);
  const worker = (socket: string): string => {
    const bindings = [
      ...Object.entries(vars(socket)).map(
        ([name, text]) => `(name = "${name}", text = ${JSON.stringify(text)})`,
      ),
      ...services.map((name) => `(name = "${name}", service = "internet")`),
      ...own.map((name) => `(name = "${name}", service = "main-${socket}")`),
    ];
    return `(
      modules = [(name = "worker.js", esModule = embed "${module}")],
      compatibilityDate = "2026-10-01",
      compatibilityFlags = ${JSON.stringify(flags)},
      bindings = ${toList(bindings)},
    )`;
  };
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = ${toList([
    '(name = "internet", network = (allow = ["public", "private"]))',
    ...names.map((name) => `(name = "main-${name}", worker = ${worker(name)})`),
  ])},
  sockets = ${toList(
    names.map(
      (name) =>
        `(name = "${name}", address = "127.0.0.1:${sockets[name]}", http = (), service = "main-${name}")`,
    ),
  )},
);
`;
}

function toList(items: readonly string[]): string {
  return `[\n  ${items.join(",\n  ")}\n]`;
}
