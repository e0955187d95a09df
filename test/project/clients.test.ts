/** docs/clients.md lists the gaps of HTTP clients, and blames a client only for what the server on its host does not lose. */
import { expect, test } from "vitest";
import { HOSTS, OTHER_CLIENTS } from "../hosts/_hosts.ts";
import { clientGaps, gaps, serverGaps, type Gap } from "../suite/gaps/gaps.ts";
import { type Client, type Loss, losses } from "../suite/gaps/losses.ts";
import { CLIENTS } from "./_clients.ts";
import { readPage, renderLosses } from "./_readme.ts";

const all = Object.values(losses).flat();

test("docs/clients.md lists every loss, and is out of date when the text of any loss changes", () => {
  const page = readPage("docs/clients.md");
  expect(page).toContain(renderLosses());
  for (const [reason] of all) {
    const change = (text: string): string => (text === reason ? `${text}!` : text);
    const lists = Object.fromEntries(
      Object.entries(losses).map(([heading, list]) => [
        heading,
        list.map(([text, ...on]): Loss => [change(text), ...on]),
      ]),
    );
    const onClients = clientGaps.map((gap) => ({ ...gap, reason: change(gap.reason) }));
    expect(page, reason).not.toContain(renderLosses(lists, onClients));
  }
});

test("for each client that a loss names, a test is listed that fails there, and no client has the same test in two gaps", () => {
  for (const [reason, ...on] of all) {
    for (const host of new Set(on.flatMap(([clients]) => clients))) {
      const proofs = clientGaps.filter((gap) => gap.host === host && gap.reason === reason);
      expect(proofs.length, `${reason}, on ${host}`).toBeGreaterThan(0);
    }
  }
  const pairs = gaps.map(({ host, test: title }) => `${host}: ${title}`);
  expect(pairs.filter((pair, at) => pairs.indexOf(pair) !== at)).toEqual([]);
});

test("every HTTP client but Fetchway's own has a name in the lists, and the hosts in server gaps use Fetchway's own", () => {
  const named = Object.values(CLIENTS).map((host) => HOSTS[host]);
  const unnamed = OTHER_CLIENTS.map((host) => HOSTS[host]).filter(
    ({ runtime, client }) =>
      !named.some((each) => each.runtime === runtime && each.client === client),
  );
  expect(unnamed).toEqual([]);
  expect(serverGaps.filter(({ host }) => HOSTS[host].client !== "own")).toEqual([]);
});

test("a loss that the server causes is listed as the server's, and not as the client's", () => {
  const title = "TE: trailers is forwarded, and Connection names TE";
  const other = "path and query pass byte for byte";
  const gap = (host: Gap["host"], reason: string, of: Gap["test"] = title): Gap => ({
    host,
    test: of,
    reason,
  });
  const every: readonly Client[] = Object.values(CLIENTS);
  const lists: typeof losses = {
    "Made up": [
      ["a", [["fetch-node"], [title]]],
      ["b", [every, [other]]],
      ["c", [every.slice(1), [title, other]]],
    ],
  };
  const onClients = [
    gap("fetch-node", "a"),
    ...every.map((host) => gap(host, "b", other)),
    ...every.slice(1).map((host) => gap(host, "c", other)),
  ];
  const onServers = [gap("bun", "d"), gap("workerd", "d")];
  expect(renderLosses(lists, onClients, onServers)).toBe(`\
The number of losses: undici 1, Node 3, Bun 2, Deno 2, Workers 2.

### Made up

| loss | HTTP client                 |
| ---- | --------------------------- |
| a    | Node (server: Bun, Workers) |
| b    | undici, every \`fetch\`       |
| c    | every \`fetch\`               |
`);
});
