import { describe, expect, test } from "vitest";
import { checkLine } from "../../command/config/checkline.ts";
import { parse } from "../../command/flags/parse.ts";
import { splitWords } from "../../command/flags/routeflag.ts";
import { OLDEST } from "../../runtimes/sockets/versions.ts";
import { command, upstream } from "./_command.ts";

/** Command lines, each with the messages about it. */
const refusals = `
$
no target: write fetchway http://127.0.0.1:4000, or try fetchway --demo
$ http://a --timout 5
there is no --timout: use --timeout
$ http://a --maxSockets=5
there is no --maxSockets: use --max-sockets
$ http://a --time-out 5
there is no --time-out: use --timeout
$ http://a --bogus 5
there is no --bogus: see fetchway --help all
$ --bogus a http://b -x
there is no --bogus: see fetchway --help all
there is no -x: see fetchway --help all
$ http://a --ports 5
there is no --ports: use --port
$ http://a -port 5 -bogus
there is no -port: use --port
there is no -bogus: see fetchway --help all
$ http://a -listen 5 -k
there is no -listen: use --port 5
there is no -k: use --insecure
$ http://a -pq
-p "q": use a whole number from 0 to 65535; 0 takes a free port
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
$ http://a --stop-timeout 1.5s
--stop-timeout "1.5s": use milliseconds, or a duration such as 500ms, 10s, 2m or 1h
$ http://a --timeout -1
--timeout "-1": use milliseconds, or a duration such as 500ms, 10s, 2m or 1h
$ http://a --timeout=1e3
--timeout "1e3": use milliseconds, or a duration such as 500ms, 10s, 2m or 1h
$ http://a --timeout 1000h --connect-timeout Infinity
--connect-timeout "Infinity": use milliseconds, or a duration such as 500ms, 10s, 2m or 1h
--timeout "1000h": use whole milliseconds, 0 for no limit
$ http://a --body-limit 1x
--body-limit "1x": use bytes, or a size such as 512k or 10mb
$ http://a --max-sockets 0
--max-sockets "0": use a whole number from 1, or Infinity for no limit
$ http://a --max-queued infinite
--max-queued "infinite": use a whole number from 0, or Infinity for no limit
$ http://a --xfwd maybe
--xfwd "maybe": use true, false or "forwarded"
$ http://a --no-xfwd=1
--no-xfwd: it takes no value; leave the value out
$ http://a --redirect-targets x
--redirect-targets "x": use same-origin or any
$ --retry 503 http://a
--retry: use true or false; its details can only be set in a config file
$ http://a --no-dns=1 --trust-proxy 10.0.0.1/8
--no-dns: it takes no value; leave the value out
--trust-proxy "10.0.0.1/8": "10.0.0.1/8" is not a range: use "10.0.0.0/8", or "10.0.0.1" for that address alone
$ http://a --demo=1
--demo: use true or false
$ http://a --header 'authorization s3cret'
--header: write it as "name: value", or as "name:" to delete it
$ http://a --header 'a b: s3cret'
--header: "a b" is not a field name
$ http://a --header host:b
--header: set Host by the --host-header option
$ http://a --forward-headers x-ok,connection
--forward-headers: "connection" belongs to one connection or to the framing; leave it out
$ http://a --path-rewrite x
--path-rewrite: write it as "from=to", such as "^/old/=/new/"
$ http://a --path-rewrite '(=x'
--path-rewrite: Invalid regular expression: /(/: Unterminated group
$ http://a --strip-prefix api
--strip-prefix "api": use a path such as "/api"
$ example.com
bad target "example.com": write "http://example.com"
$ 70000
bad target "70000": use a URL such as "http://localhost:4000", also for WebSockets, or "unix:/path"; ports end at 65535
$ 4000 :4000 localhost:6000
http://localhost:4000 is there twice; set its weight instead
$ /run/app.sock
"/run/app.sock": write unix:/run/app.sock
$ http://unix:/run/app.sock
"http://unix:/run/app.sock": write unix:/run/app.sock
$ ftp://a
bad target "ftp://a": use a URL such as "http://localhost:4000", also for WebSockets, or "unix:/path"
$ http://me:s3cret@a
a target must not hold credentials; set --header "authorization: …" instead
$ http://a http://me:s3cret@b
a target must not hold credentials; set --header "authorization: …" instead
$ localhost: --port=x --via='a b' --timout 5
--port "x": use a whole number from 0 to 65535; 0 takes a free port
there is no --timout: use --timeout
--via "a b": use a pseudonym of token characters such as "edge", or false
bad target "localhost:": write "http://localhost:"
$ --route /a=http://a --route /a/=http://b --route /c
--route "/c": write it as /path=http://127.0.0.1:4000 or host/path=http://127.0.0.1:4000
--route /a: another --route has the same path
$ --help=few
--help: use --help, or --help all
$ -c a.json
there is no -c: use --config
$ -t --config a.json
there is no -t: to test a config, use --config <file> --inspect /; write the target without a flag: fetchway http://127.0.0.1:4000
$ -t localhost:4000
there is no -t: write the target without a flag: fetchway localhost:4000
$ 4000:8080
"4000:8080": 4000 is no host: to listen on port 4000, write fetchway 8080 --port 4000
$ http://4000:8080
"http://4000:8080": 4000 is no host: to listen on port 4000, write fetchway 8080 --port 4000
$ ./public
"./public": it serves no files; see docs/coming-from-nginx.md
$ http://unix:/run/app.sock:/
"http://unix:/run/app.sock:/": write unix:/run/app.sock
$ a:1,b:2
"a:1,b:2": separate targets by spaces
$ 4000 --cors=http://a.test
--cors: for one origin, use --cors-origin
$ --to localhost:4000
there is no --to: write the target without a flag: fetchway localhost:4000
$ --listen :80 --upstream nonsense -P 81 http://a
there is no --listen: use --port 80
there is no --upstream: write the target without a flag: fetchway http://127.0.0.1:4000
there is no -P: use --port 81
$ http://a --listen /run/x.sock --bind 0.0.0.0:8080 --address ::1 -l :81
there is no --listen: use --host unix:/run/x.sock
there is no --bind: use --host 0.0.0.0 --port 8080
there is no --address: use --host
there is no -l: use --port 81
$ http://a --host /run/x.sock
--host "/run/x.sock": for a socket, use "unix:/run/x.sock"
$ http://a --host ./x.sock
--host "./x.sock": for a socket, use "unix:/path"
$ http://a --host 0.0.0.0:8080
--host "0.0.0.0:8080": use "0.0.0.0", and 8080 as the port
$ http://a --host [::1]:8080
--host "[::1]:8080": use "[::1]", and 8080 as the port
$ http://a --host http://localhost
--host "http://localhost": use an address such as "0.0.0.0", or a socket such as "unix:/run/fetchway.sock"
$ help
there is no command help: use --help
$ /api=http://a
"/api=http://a" is a route: use --route "/api=http://a"
$ http://a -d
there is no -d: it stays in the foreground; docs/deploy.md shows it as a service
$ http://a --change-host-header --preserve-host --ws
there is no --change-host-header: the target's Host is sent by default
there is no --preserve-host: use --no-change-origin
there is no --ws: WebSockets are carried by default
$ http://a --auth me:s3cret --proxy-timeout=5s
there is no --auth: use --header "authorization: …"
there is no --proxy-timeout: use --timeout
`;

/** Command lines that are refused only when the command starts, after `checkLine` has accepted them. */
const startRefusals = `
$ http://a --socket-mode 660
--socket-mode does nothing without --host unix:/path
$ http://a --redirect-targets any
--redirect-targets does nothing without --follow-redirects; set that too
$ --demo --port 0 --host 192.0.2.1
host "192.0.2.1" is not an address of this machine: use --host 127.0.0.1 or 0.0.0.0
$ --demo --port 0 --host no.such.invalid
host "no.such.invalid" is not an address of this machine: use --host 127.0.0.1 or 0.0.0.0
`;

/** Returns each command line with its messages. */
function readCases(text: string): [line: string, ...answers: string[]][] {
  return text
    .split("\n$")
    .slice(1)
    .map((each) => each.trimEnd().split("\n") as [string, ...string[]]);
}

describe("refusals that name the mistake and the fix", () => {
  test.each(readCases(refusals))("the line: fetchway%s", (line, ...answers) => {
    expect(checkLine(parse(splitWords(line))).problems).toEqual(answers);
  });

  const processes = `
$ http://a --header 'authorization s3cret' --timout 5
there is no --timout: use --timeout
--header: write it as "name: value", or as "name:" to delete it
${startRefusals.trim()}
`;
  test.each(readCases(processes))(
    "the process prints the messages and ends with exit code 2: fetchway%s",
    async (line, ...answers) => {
      const expected = answers.map((answer) => `fetchway: ${answer}\n`);
      expect((await command(line).refusal()).split(/(?<=\n)/).toSorted()).toEqual(
        expected.toSorted(),
      );
    },
  );

  test.each(["20.20.2", "22.0.0", "22.3.0"])(
    "the command refuses to run on Node %s, which is too old",
    async (version) => {
      const pretend = `Object.defineProperty(process.versions, "node", { value: "${version}" })`;
      const old = command("http://a", "--import", `data:text/javascript,${pretend}`);
      expect(await old.refusal()).toBe(
        `fetchway: Node ${version} is too old: use ${OLDEST.Node} or newer\n`,
      );
    },
  );

  test("a port that is in use is refused with the fix", async () => {
    const { port } = new URL(upstream.url);
    expect(await command(`http://a --port ${port}`).refusal()).toBe(
      `fetchway: port ${port} is in use: use --port with another, or 0 for a free one\n`,
    );
  });
});
