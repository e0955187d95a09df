/** How the value of the flag `--route` is parsed. */
import { expect, test } from "vitest";
import { readRoute, splitWords } from "../../command/flags/routeflag.ts";

test.each([
  ["/api=http://a", { match: ["/api"], options: { target: "http://a" } }],
  ["Shop.Example/=http://a?b=c", { match: ["shop.example/"], options: { target: "http://a?b=c" } }],
  [
    "/a='unix:\\\\.\\pipe\\b',unix://./pipe/c",
    { match: ["/a"], options: { target: ["unix:\\\\.\\pipe\\b", "unix://./pipe/c"] } },
  ],
  ["/a,b.example=unix:/x", { match: ["/a", "b.example/"], options: { target: "unix:/x" } }],
  [
    `/api=http://a --strip-prefix /api --timeout=5 --no-xfwd --max-sockets 3 --header "x-a: b 'c'"`,
    {
      match: ["/api"],
      options: {
        target: "http://a",
        stripPrefix: "/api",
        timeout: 5,
        xfwd: false,
        headers: { "x-a": "b 'c'" },
        pool: { maxSockets: 3 },
      },
    },
  ],
  [
    "/api=http://a --when-method POST,PUT --when-header 'x-beta: *' --when-header c:d --when-query v=2",
    {
      match: ["/api"],
      when: { method: ["POST", "PUT"], headers: { "x-beta": "*", c: "d" }, query: { v: "2" } },
      options: { target: "http://a" },
    },
  ],
])("the value %s becomes a route", (text, route) => {
  expect(readRoute(text)).toEqual(route);
});

test.each([
  ["", '--route "": write it as /path=http://127.0.0.1:4000 or host/path=http://127.0.0.1:4000'],
  ["http://a", '--route "http://a": write it as /path=http://127.0.0.1:4000'],
  ["/api=", '--route "/api=": write it as /path='],
  ["/api=ftp://a", '--route /api: bad target "ftp://a": use a URL such as "http://localhost:4000"'],
  ["/api=http://a --timout 5", "--route /api: there is no --timout: use --timeout"],
  ["/api=http://a --timeout x", '--route /api: --timeout "x": use milliseconds'],
  ["/api=http://a --timeout -- http://b", "--route /api: --timeout: a value is missing"],
  ["/api=http://a http://b", "--route /api: write the targets of a route before its flags"],
  [
    "/api=http://a --port 5",
    "--route /api: --port is not an option of one route; write it outside",
  ],
  ["/api=http://a --demo", "--route /api: --demo is not an option of one route; write it outside"],
  ["/api=http://a --when-method post", '--route /api: --when-method: write "POST"'],
  [
    "/api=http://a --when-header x-beta:",
    '--route /api: --when-header: "x-beta": use a text in which * stands for any characters',
  ],
  ["*/x=http://a", '--route */x: for any host, write "/x"'],
])("the value %j is refused with the fix", (text, message) => {
  const problems = readRoute(text);
  expect(problems).toBeInstanceOf(Array);
  expect((problems as string[])[0]?.slice(0, message.length)).toBe(message);
});

test.each([
  [" a  b\tc\n", ["a", "b", "c"]],
  [`"a b"c 'd "e' f\\ g ""`, ["a bc", 'd "e', "f g", ""]],
  [`"a\\"b\\c" 'open`, ['a"b\\c', "'open"]],
])("the text %j is split into words", (text, words) => {
  expect(splitWords(text)).toEqual(words);
});
