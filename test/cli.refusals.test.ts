import { describe, expect, test } from "vitest";
import { OLDEST } from "../runtimes/sockets/versions.ts";
import { command, upstream } from "./_command.ts";

/** Commands, and what each says on stderr. */
const refusals = `
$
no target: write fetchway http://127.0.0.1:4000, or try fetchway --demo
$ http://a --timout 5
there is no --timout: use --timeout
$ http://a --maxSockets=5
there is no --maxSockets: use --max-sockets
$ http://a --bogus 5
there is no --bogus: see fetchway --help
$ --bogus a http://b -x
there is no --bogus: see fetchway --help
there is no -x: see fetchway --help
$ http://a --port
--port: a value is missing, write --port <number>
$ http://a --via --demo
--via: a value is missing, write --via <name>
$ http://a --host=
--host: a value is missing, write --host <address>
$ http://a --port abc
--port "abc": use a whole number from 0 to 65535; 0 takes a free port
$ http://a -p=65536
-p "65536": use a whole number from 0 to 65535; 0 takes a free port
$ http://a --stop-timeout 1s
--stop-timeout "1s": use whole milliseconds
$ http://a --timeout -1
--timeout "-1": use whole milliseconds, 0 for no limit
$ http://a --timeout=1e3
--timeout "1e3": use whole milliseconds, 0 for no limit
$ http://a --body-limit 1x
--body-limit "1x": use bytes, or a size such as 512k or 10mb
$ http://a --max-sockets 0
--max-sockets "0": use a whole number, 1 or more, or Infinity
$ http://a --max-queued infinite
--max-queued "infinite": use a whole number, or Infinity
$ http://a --xfwd maybe
--xfwd "maybe": use true, false or "forwarded"
$ http://a --no-xfwd=1
--no-xfwd: it takes no value, leave that out
$ http://a --redirect-targets x
--redirect-targets "x": use same-origin or any
$ http://a --redirect-targets any
--redirect-targets does nothing without --follow-redirects; set that too
$ --retry 503 http://a
--retry: use true or false; its details can only be set in code
$ http://a --no-dns=1 --trust-proxy 10.0.0.1/8
--no-dns: it takes no value, leave that out
--trust-proxy "10.0.0.1/8": "10.0.0.1/8" is no range: use "10.0.0.0/8", or "10.0.0.1" for that address alone
$ http://a --demo=1
--demo: use true or false
$ http://a --header 'authorization s3cret'
--header: write it as "name: value", or as "name:" to delete it
$ http://a --header 'a b: s3cret'
--header: "a b" is no field name
$ http://a --header host:b
--header: set Host by the --host-header option
$ http://a --forward-headers x-ok,connection
--forward-headers: "connection" belongs to one connection (RFC 9110 §7.6.1); leave it out
$ http://a --path-rewrite x
--path-rewrite: write it as "from=to", such as "^/old/=/new/"
$ http://a --path-rewrite '(=x'
--path-rewrite: Invalid regular expression: /(/: Unterminated group
$ http://a --strip-prefix api
--strip-prefix "api": use a path such as "/api"
$ localhost:4000
bad target "localhost:4000": use http://localhost:4000
$ 4000
bad target "4000": use http://127.0.0.1:4000
$ ftp://a
bad target "ftp://a": its scheme must be http: or https:
$ http://me:s3cret@a
a target must not hold credentials; set --header "authorization: …" instead
$ http://a http://me:s3cret@b
"http://b": one target is enough, leave the others out
$ localhost:1 --port=x --via='a b' --timout 5
--port "x": use a whole number from 0 to 65535; 0 takes a free port
there is no --timout: use --timeout
--via "a b": use a pseudonym of token characters, or false
bad target "localhost:1": use http://localhost:1
$ --demo --port 0 --host 192.0.2.1
host "192.0.2.1" is no address of this machine: use --host 127.0.0.1 or 0.0.0.0
$ --demo --port 0 --host no.such.invalid
host "no.such.invalid" is no address of this machine: use --host 127.0.0.1 or 0.0.0.0
`;

describe("a bad argument is refused with a message that names it and the fix", () => {
  const cases = refusals
    .split("\n$")
    .slice(1)
    .map((each) => each.trimEnd().split("\n") as [string, ...string[]]);
  test.each(cases)("fetchway%s", async (line, ...answers) => {
    const expected = answers.map((answer) => `fetchway: ${answer}\n`).join("");
    expect(await command(line).refusal()).toBe(expected);
  });

  test.each(["20.20.2", "22.0.0", "22.3.0"])("Node %s is too old", async (version) => {
    const pretend = `Object.defineProperty(process.versions, "node", { value: "${version}" })`;
    const old = command("http://a", "--import", `data:text/javascript,${pretend}`);
    expect(await old.refusal()).toBe(
      `fetchway: Node ${version} is too old: use ${OLDEST.Node} or newer\n`,
    );
  });

  test("a port in use is refused", async () => {
    const { port } = new URL(upstream.url);
    expect(await command(`${upstream.url} --port ${port}`).refusal()).toBe(
      `fetchway: port ${port} is in use: use --port with another, or 0 for a free one\n`,
    );
  });
});
