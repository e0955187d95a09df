/** No message about wrong input shows the credentials of a URL, wherever the URL is written and whatever is wrong with it. */
import { describe, expect, test } from "vitest";
import { checkConfig } from "../../command/config/checkconfig.ts";
import { checkLine } from "../../command/config/checkline.ts";
import { serverSchema } from "../../command/flags/commandoptions.ts";
import { flags } from "../../command/flags/flags.ts";
import { parse } from "../../command/flags/parse.ts";
import { createProxy } from "../../runtimes/node.ts";
import { cutCredentials } from "../../src/misuse.ts";
import { poolSchema } from "../../src/options/pooloptions.ts";
import { proxySchema } from "../../src/options/proxyoptions.ts";

const URLS = [
  "http://user:s3cret@127.0.0.1:1",
  "http:/user:s3cret@host",
  "http:user:s3cret@host",
  "htp://user:s3cret@host",
  "//user:s3cret@host",
  "user:s3cret@host",
  "s3cret@host",
  "unix:user:s3cret@host",
  "http://user:s3@s3cret@host",
  "http://user:s3cret#?/@host",
];
const TARGET = "http://127.0.0.1:1";

/** Returns the messages about a command line. */
function complain(...args: string[]): readonly string[] {
  try {
    return checkLine(parse(args)).problems;
  } catch (error) {
    return [(error as Error).message];
  }
}

function complainAbout(config: object): string[] {
  return checkConfig(config).map(({ text }) => text);
}

describe.each(URLS)("no message shows the credentials of the URL %s", (url) => {
  const values: unknown[] = [
    url,
    [url],
    { url },
    { target: url },
    { [url]: url },
    [{ target: url }],
  ];

  test("in any flag of the command line", () => {
    const lines = [
      [url],
      ["4000", url],
      ["--route", url],
      ["--route", `/a=${url}`],
      ["--route", `${url}=http://x`],
      [`--unknown=${url}`],
      ["4000", "--inspect", `GET ${url}`],
      ...flags.flatMap(({ name }) => [
        ["4000", `--${name}`, url],
        ["4000", `--${name}=${url}`],
      ]),
    ];
    const messages = lines.flatMap((line) => complain(...line));
    expect(messages.length).toBeGreaterThan(flags.length);
    expect(messages.filter((each) => each.includes("s3cret"))).toEqual([]);
  });

  test("in any option of a config", () => {
    const configs = values.flatMap((value) => [
      ...[...Object.keys(proxySchema), "target", "pool", "balance", url].map((name) => ({
        target: TARGET,
        [name]: value,
      })),
      ...Object.keys(poolSchema).map((name) => ({ target: TARGET, pool: { [name]: value } })),
      ...[...Object.keys(serverSchema), url].map((name) => ({
        target: TARGET,
        server: { [name]: value },
      })),
      ...["match", "target", url].map((name) => ({
        routes: [{ match: "/a", target: TARGET, [name]: value }],
      })),
    ]);
    const messages = configs.flatMap(complainAbout);
    expect(messages.length).toBeGreaterThan(100);
    expect(messages.filter((each) => each.includes("s3cret"))).toEqual([]);
  });

  test("in any option of createProxy", () => {
    const messages = values.flatMap((value) =>
      [...Object.keys(proxySchema), "target", "pool", url].flatMap((name) => {
        try {
          createProxy({ target: TARGET, [name]: value }).destroy();
          return [];
        } catch (error) {
          return [(error as Error).message];
        }
      }),
    );
    expect(messages.length).toBeGreaterThan(50);
    expect(messages.filter((each) => each.includes("s3cret"))).toEqual([]);
  });
});

test("only the credentials of a URL are removed from a message, and no other text", () => {
  expect(cutCredentials("http://host:1/a?b")).toBe("http://host:1/a?b");
  expect(cutCredentials("http://u:p@host:1/a")).toBe("http://…@host:1/a");
});
