/**
 * The lists of docs/clients.md, which `_readme.ts` renders: what is lost with each HTTP client. A loss that a server has with
 * every client is listed as one of the server.
 */
import type { Gap } from "../suite/gaps/gaps.ts";
import type { Client, Loss, losses } from "../suite/gaps/losses.ts";
import { HOSTS } from "../hosts/_hosts.ts";

/** The clients by their names in the lists. The name of a runtime stands for its `fetch`. */
export const CLIENTS: Readonly<Record<string, Client>> = {
  undici: "undici",
  Node: "fetch-node",
  Bun: "fetch-bun",
  Deno: "fetch-deno",
  Workers: "workerd",
};

const namesOf = (has: (client: Client) => boolean): string[] =>
  Object.entries(CLIENTS).flatMap(([name, client]) => (has(client) ? [name] : []));

/** Returns the names of the clients that have a loss, and of those whose server fails the same tests with every client. */
function sidesOf(
  [reason, ...on]: Loss,
  onClients: readonly Gap[],
  onServers: readonly Gap[],
): [clients: string[], servers: string[]] {
  const isServers = (client: Client): boolean => {
    const { server = client } = HOSTS[client];
    const fails = (test: Gap["test"]): boolean =>
      onServers.some((gap) => gap.host === server && gap.test === test);
    return on.every(([, tests]) => tests.every(fails));
  };
  const loses = (client: Client): boolean =>
    onClients.some((gap) => gap.host === client && gap.reason === reason);
  return [namesOf(loses), namesOf(isServers)];
}

/** Returns the headings of the lists, each with its rows: the effect of a loss, and where it exists. */
export function lossRows(
  lists: typeof losses,
  onClients: readonly Gap[],
  onServers: readonly Gap[],
): [heading: string, rows: string[][]][] {
  return Object.entries(lists).map(([heading, list]) => {
    const rows = list.map((loss) => {
      const [clients, servers] = sidesOf(loss, onClients, onServers);
      const where = clients.join(", ").replace("Node, Bun, Deno, Workers", "every `fetch`");
      return [loss[0], servers.length === 0 ? where : `${where} (server: ${servers.join(", ")})`];
    });
    return [heading, rows];
  });
}

/** Returns how many losses each client has, in one sentence. */
export function countLosses(onClients: readonly Gap[]): string {
  const counts = Object.entries(CLIENTS).map(([name, client]) => {
    const reasons = onClients.filter((gap) => gap.host === client).map((gap) => gap.reason);
    return `${name} ${new Set(reasons).size}`;
  });
  return `The number of losses: ${counts.join(", ")}.\n`;
}
