/** Errors in a config file are reported with their line, and name options as the file does. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checkConfig } from "../../command/config/checkconfig.ts";
import { findJsonFault } from "../../command/config/jsonfault.ts";
import { ConfigError, readConfig } from "../../command/config/loadconfig.ts";
import { toSettings } from "../../command/config/settings.ts";
import { serverDefaults } from "../../command/flags/commandoptions.ts";
import { startProgram } from "../helpers/program.ts";
import { within } from "../helpers/wait.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "fetchway-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

function write(name: string, source: string): string {
  const path = join(folder, name);
  writeFileSync(path, source);
  return path;
}

async function problemsOf(name: string, source: string): Promise<readonly string[]> {
  try {
    await readConfig(write(name, source));
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

const target = "http://127.0.0.1:4000";

describe("a valid config file", () => {
  test.each([
    ["a.json", `{ "target": "${target}" }`],
    ["marked.json", `\uFEFF{ "target": "${target}" }`],
    ["marked.mjs", `\uFEFFexport default { target: "${target}" };`],
    ["a.js", `export default { target: "${target}" };`],
    ["a.mjs", `export default { target: "${target}" };`],
    ["a.cjs", `module.exports = { target: "${target}" };`],
    ["a.ts", `export default { target: "${target}" as string };`],
    [
      "a.mts",
      `interface A { target: string }\nexport default { target: "${target}" } satisfies A;`,
    ],
  ])("%s is read, and read again after a change", async (name, source) => {
    expect(await readConfig(write(name, source))).toEqual({ target });
    expect(await readConfig(write(name, source.replace("4000", "5000")))).toEqual({
      target: target.replace("4000", "5000"),
    });
  });

  test("may have options that are undefined, to which their defaults apply", async () => {
    const unset = Object.keys(serverDefaults).map((name) => `${name}: undefined`);
    const source = `export default {
  target: "${target}",
  timeout: 5000,
  pool: { maxSockets: 7, tls: undefined },
  balance: undefined,
  server: { ${unset.join()} },
  routes: [{ match: "/a", target: "${target}", timeout: undefined, pool: { maxSockets: undefined } }],
};`;
    const config = await readConfig(write("undefined.mjs", source));
    const flags = { server: {}, proxy: {}, routes: [], target: undefined };
    const trust = { tls: { ca: "pem" } };
    const options = { target, timeout: 5000, pool: { maxSockets: 7, ...trust } };
    const { server, routes } = toSettings(flags, config, trust);
    expect(server).toStrictEqual(serverDefaults);
    expect(routes).toStrictEqual([
      { match: ["/a"], options },
      { match: ["/"], options },
    ]);
  });
});

describe("the message about a config file that cannot be read has the reason:", () => {
  const read = async (path: string): Promise<readonly string[]> => {
    try {
      await readConfig(path);
      return [];
    } catch (error) {
      return (error as ConfigError).problems;
    }
  };

  test("a file in UTF-16, with a byte order mark or without", async () => {
    const text = JSON.stringify({ target });
    const littleEndian = Buffer.from(`\uFEFF${text}`, "utf16le");
    const bigEndian = Buffer.from(littleEndian).swap16();
    for (const bytes of [
      littleEndian,
      littleEndian.subarray(2),
      bigEndian,
      bigEndian.subarray(2),
    ]) {
      const path = join(folder, "wide.json");
      writeFileSync(path, bytes);
      expect(await read(path)).toEqual(["wide.json: it is in UTF-16: save it in UTF-8"]);
    }
  });

  test("a folder, or a symbolic link that leads nowhere", async () => {
    const path = join(folder, "dangling.mjs");
    symlinkSync("nowhere.mjs", path);
    expect(await read(path)).toEqual([
      `--config "${path}": it is a link to "nowhere.mjs", which does not exist`,
    ]);
    mkdirSync(join(folder, "folder.mjs"));
    expect(await read(join(folder, "folder.mjs"))).toEqual([
      `--config "${join(folder, "folder.mjs")}": it is a folder`,
    ]);
  });

  test("a module that Node takes for CommonJS", async () => {
    mkdirSync(join(folder, "commonjs"));
    write("commonjs/package.json", '{ "type": "commonjs" }');
    const good = `export default { target: "${target}" };`;
    const imports = `import "node:fs";\n${good}`;
    const why = "Node takes it for CommonJS, by its name or its package.json, but it is a module";
    for (const [name, source, better] of [
      ["a.ts", good, "a.mts"],
      ["b.ts", imports, "b.mts"],
      ["c.js", good, "c.mjs"],
      ["d.cjs", imports, "d.mjs"],
    ] as const) {
      const path = write(`commonjs/${name}`, source);
      // Start the command: in this process, the test runner would import the file and accept it.
      const args = ["command/main.ts", "--config", path, "--inspect", "/"];
      await using program = startProgram("node", args);
      await within(program.ended(), "the end");
      expect(program.output()).toContain(`fetchway: ${name}: ${why}: name it ${better}\n`);
      expect(await read(write(`commonjs/${better}`, source))).toEqual([]);
    }
  });
});

describe("a wrong config file", () => {
  test.each([
    [
      "a.json",
      '{\n  "a": 1,\n}',
      'a.json:3: it is not JSON: "}" is not expected here; remove the comma before it?',
    ],
    [
      "a.json",
      '{\n  "a": \n',
      "a.json:3: it is not JSON: the end of the file is not expected here",
    ],
    ["a.json", "[1]", 'a.json: export an object such as { target: "http://…" }'],
    ["b.mjs", "\n\nexport default { target: nothing };\n", "b.mjs:3: nothing is not defined"],
    ["b.mjs", 'throw "no";', "b.mjs: it throws no"],
    ["a.json", " \n", "a.json: the file is empty"],
    [
      "f.mjs",
      "throw new Error(\"Cannot find package 'fetchway' imported from /srv/f.mjs\")",
      "f.mjs: it cannot import fetchway: run npm install fetchway in its folder, or leave defineConfig out",
    ],
    [
      "l.json",
      '{ "routes": [{ "match": "/a", "target": "http://a.test", "location": "/a" }] }',
      'l.json:1: route "/a": location: it is called `match` here',
    ],
    // A config file has no short forms of targets, such as a port alone.
    ["t.mjs", "export default { target: 4000 };", 't.mjs:1: target: write "http://localhost:4000"'],
    [
      "t.json",
      '{ "target": "localhost:4000/a" }',
      't.json:1: target: write "http://localhost:4000/a"',
    ],
    [
      "t.json",
      '{ "routes": [{ "match": "/a", "target": ":4000" }] }',
      't.json:1: route "/a": target: write "http://localhost:4000"',
    ],
    [
      "b.mjs",
      "export const target = 1;",
      "b.mjs:1: there is no default export: write export default {…}",
    ],
    [
      "b.mjs",
      "export default () => ({});",
      "b.mjs: export the config itself, not a function or a promise",
    ],
    [
      "o.mjs",
      `export default { target: "${target}",\n  tiemout: undefined };`,
      "o.mjs:2: tiemout: there is no such option; did you mean `timeout`?",
    ],
    [
      "o.json",
      '{\n "target": { "url": "http://127.0.0.1:4000", "tsl": {} } }',
      "o.json:2: target: tsl: there is no such option; did you mean `tls`?",
    ],
    [
      "o.json",
      '{ "routes": [{ "match": "/a",\n "target": [{ "target": { "url": "https://a.test", "tls": { "certs": "" } }, "weight": 2 }] }] }',
      'o.json:2: route "/a": target: certs: there is no such option; did you mean `cert`?',
    ],
    [
      "o.json",
      '{ "target": "https://a.test",\n "pool": { "tls": { "rejectUnauthorised": false } } }',
      "o.json:2: pool.tls: rejectUnauthorised: there is no such option; did you mean `rejectUnauthorized`?",
    ],
    [
      "o.json",
      '{ "target": "https://a.test",\n "mirror": { "target": { "url": "http://a.test", "tsl": {} } } }',
      'o.json:2: mirror: target: bad target "http://a.test": tsl: there is no such option; did you mean `tls`?',
    ],
  ])(
    "%s with the text %j is refused with a message about the mistake",
    async (name, source, message) => {
      expect(await problemsOf(name, source)).toEqual([message]);
    },
  );

  test.each(["none.mjs", "config.yaml"])(
    "%s, which does not exist or has an unknown extension, is refused with the reason or the fix",
    async (name) => {
      await expect(readConfig(join(folder, name))).rejects.toThrow(
        name === "none.mjs" ? "there is no such file" : "use a .mjs, .js, .ts or .json file",
      );
    },
  );

  test("each of several wrong options causes a message, with its line if its name occurs only once", async () => {
    const source = `const target = "${target}";
export default {
  port: 8080,
  timout: 5, log: false,
  maxSockets: 5,
  server: { prot: 8080, host: 1 },
  pool: { maxQueued: -1 },
  routes: [
    { match: "/a", target, timeout: "5" },
    { match: "/a/", target: "ftp://x", bodyLimit: -1 },
    { match: ["/b", "http://x/c"], upstream: target, timeout: -1 },
    { match: "/c", target, stats: true },
    5,
  ],
};
`;
    expect(await problemsOf("c.mjs", source)).toEqual([
      "c.mjs:6: server.prot: there is no such option; did you mean `port`?",
      'c.mjs:6: server.host: use an address such as "0.0.0.0", or a socket such as "unix:/run/fetchway.sock"',
      "c.mjs:3: port: it is an option of the server; write server: { port: … }",
      "c.mjs:4: timout: there is no such option; did you mean `timeout`?",
      "c.mjs:4: log: it is an option of the server; write server: { log: … }",
      "c.mjs:5: maxSockets: it is an option of the pool; write pool: { maxSockets: … }",
      "c.mjs:7: pool.maxQueued: use a whole number from 0, or Infinity for no limit",
      'c.mjs: route "/a": timeout: use whole milliseconds or a text such as "10s", 0 for no limit',
      'c.mjs: route "/a/": match: "/a/": route "/a" has it already',
      'c.mjs:10: route "/a/": target: use a URL such as "http://localhost:4000", also for WebSockets, or "unix:/path"',
      'c.mjs:10: route "/a/": bodyLimit: use a number of bytes or a text such as "10mb"',
      'c.mjs: route "/b, http://x/c": match: leave out the scheme, and write "x/c"',
      'c.mjs: route "/b, http://x/c": target: say where to send the requests',
      'c.mjs:11: route "/b, http://x/c": upstream: it is called `target` here',
      'c.mjs: route "/b, http://x/c": timeout: use whole milliseconds or a text such as "10s", 0 for no limit',
      'c.mjs:12: route "/c": stats: it is an option of the server, not of a route; write it at the top in server: { stats: … }',
      "c.mjs: routes[4]: use an object",
    ]);
  });

  test("if several routes have the same option, the message has the line of the wrong option", async () => {
    const source = `{
  "routes": [
    { "match": "/a", "target": "${target}", "timeout": 5 },
    { "match": "/b",
      "target": "${target}",
      "timeout": -5 },
    { "match": "/c", "target": "${target}", "redirectTargets": "any" }
  ]
}`;
    expect(await problemsOf("d.json", source)).toEqual([
      'd.json:6: route "/b": timeout: use whole milliseconds or a text such as "10s", 0 for no limit',
    ]);
    // Conflicts between options are reported only when each option by itself is valid.
    expect(await problemsOf("d.json", source.replace("-5", "5"))).toEqual([
      'd.json:7: route "/c": `redirectTargets` does nothing without `followRedirects`; set that too',
    ]);
  });

  test("the option names of other tools are refused with the names to write instead", () => {
    const faults = checkConfig({
      "/api": target,
      proxy_pass: target,
      location: {},
      server: {
        listen: 80,
        server_name: "a.test",
        ssl_certificate: "a",
        proxy: {},
        constructor: 1,
        host: "/run/x.sock",
      },
    });
    expect(faults.map(({ text }) => text)).toEqual([
      'server.listen: write port: 8080, and host: "0.0.0.0" for all addresses',
      'server.server_name: write the host in front of the path, as in routes: [{ match: "shop.example/", … }]',
      "server.ssl_certificate: write cert",
      'server.proxy: write routes: [{ match: "/api", target: "http://…" }] at the top, beside server',
      expect.stringMatching(/^server\.constructor: there is no such option; there are port, host/),
      'server.host: for a socket, use "unix:/run/x.sock"',
      '/api: write routes: [{ match: "/api", target: … }]',
      "proxy_pass: it is called `target` here",
      "location: it is called `routes` here",
    ]);
  });

  test("the message about a wrong condition of a route names the wrong member", () => {
    const wrong: [when: unknown, text: string][] = [
      [{}, 'use an object such as { method: "POST", headers: { "x-beta": "1" } }'],
      ["POST", 'use an object such as { method: "POST", headers: { "x-beta": "1" } }'],
      [{ methods: "POST" }, "methods: there is no such option; did you mean `method`?"],
      [{ method: [] }, 'method: use a method such as "POST", or an array of several'],
      [{ method: ["GET", "a b"] }, 'method: use a method such as "POST", or an array of several'],
      [{ method: "get" }, 'method: write "GET"'],
      [{ headers: { "a b": "1" } }, 'headers: "a b" is not a field name'],
      [{ headers: { a: true } }, 'headers: "a": use a text in which * stands for any characters'],
      [{ query: ["v"] }, 'query: use an object such as { version: "2" }'],
      [{ query: { v: 1n } }, 'query: "v": use a text in which * stands for any characters'],
    ];
    const routes = wrong.map(([when], i) => ({ match: `/${i}`, when, target }));
    const texts = checkConfig({ routes }).map(({ text }) => text);
    expect(texts).toEqual(wrong.map(([, text], i) => `route "/${i}": when: ${text}`));
    const same = { match: "/a", when: { method: "GET" }, target };
    const others = [{ match: "/a", target }, { ...same, when: { method: "PUT" } }, same];
    expect(checkConfig({ routes: others })).toEqual([]);
    expect(checkConfig({ routes: [...others, same] })).toMatchObject([
      { text: 'route "/a": match: "/a": the same pattern is listed twice', route: 3 },
    ]);
    expect(checkConfig({ routes: [{ match: "/a", target, method: "GET" }] })).toMatchObject([
      { text: 'route "/a": method: write when: { method: … }' },
    ]);
  });

  test("the message about a wrong target in a list contains the target", () => {
    const faults = checkConfig({ target: [target, "localhost:5000"] });
    expect(faults.map(({ text }) => text)).toEqual([
      'target: "localhost:5000": write "http://localhost:5000"',
    ]);
  });

  test("no message shows the secret in a wrong option", () => {
    const faults = checkConfig({
      target: "http://me:s3cret@a",
      headers: { authorization: "s3cret\n" },
    });
    expect(faults).toHaveLength(2);
    expect(JSON.stringify(faults)).not.toContain("s3cret");
  });
});

test("the position of a syntax error in a JSON text is found", () => {
  const places = [
    ["", 0],
    ["{", 1],
    ['{"a"', 4],
    ['{"a":1,}', 7],
    ["[1,]", 3],
    ["[1 2]", 3],
    ['"a\n"', 0],
    ["01", 1],
    ["true x", 5],
    [" {} ", undefined],
    ['{"a":[1,-2.5e3,"\\u00e9",null,true,{}]}', undefined],
  ] as const;
  for (const [text, index] of places) expect([text, findJsonFault(text)]).toEqual([text, index]);
});

test("a syntax error is found exactly in the JSON texts that JSON.parse refuses", () => {
  const mutated = fc
    .tuple(fc.json(), fc.nat(), fc.constantFrom("", ",", '"', "}", "]", "x", "1", "\\", "\n"))
    .map(([text, at, put]) => {
      const index = at % (text.length + 1);
      return text.slice(0, index) + put + text.slice(index + 1);
    });
  fc.assert(
    fc.property(fc.oneof(fc.json(), mutated), (text) => {
      let isJson = true;
      try {
        JSON.parse(text);
      } catch {
        isJson = false;
      }
      expect(findJsonFault(text) === undefined).toBe(isJson);
    }),
  );
});

test.each([
  ["node", []],
  ["bun", []],
  ["deno", ["run", "-A"]],
])("on %s, the message about a syntax error in a config file has its line", async (tool, args) => {
  for (const name of ["e.ts", "e.mjs"]) {
    const path = write(name, `export default {\n  target: "${target}",\n  timeout: ,\n};\n`);
    await using program = startProgram(tool, [...args, "command/main.ts", "--config", path]);
    await within(program.ended(), "the end");
    expect([program.code(), program.output()]).toEqual([
      2,
      expect.stringMatching(new RegExp(`^fetchway: ${name}:3: .*\\w.*\n$`)),
    ]);
  }
});

test("without --config, a config file in the working directory is not read, but suggested in the message", async () => {
  const found = write("fetchway.config.mjs", `export default { target: "${target}" };`);
  const { checkLine } = await import("../../command/config/checkline.ts");
  const { parse } = await import("../../command/flags/parse.ts");
  const cwd = process.cwd();
  process.chdir(folder);
  try {
    expect(checkLine(parse([])).problems).toEqual([
      "no target: write fetchway --config fetchway.config.mjs, or fetchway http://127.0.0.1:4000",
    ]);
  } finally {
    process.chdir(cwd);
    rmSync(found);
  }
});
