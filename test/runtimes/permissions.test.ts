/** The response to a request if the runtime does not permit the connection to its upstream. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { ProxyError } from "../../src/error.ts";
import { outcomeOf } from "../../src/exchange/repeat.ts";
import { toSocketError } from "../../src/transport/socketerror.ts";
import { programs } from "../command/_command.ts";
import { compareVersions, hostNode, hostVersion } from "../hosts/_node.ts";

const execute = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

const program = fileURLToPath(new URL("_permissions.program.ts", import.meta.url));
const CASES = "address,name,own lookup,lookup of each connection,TLS,socket,fetch";
const EXPECTED = CASES.split(",")
  .map((name) => `${name}: 502 fetchway; error=destination_ip_prohibited\n`)
  .concat("lookup: destination_ip_prohibited\n")
  .join("");

test("a connection that Deno does not permit becomes 502 destination_ip_prohibited", async () => {
  const [deno = ""] = programs.deno;
  const { stdout } = await execute(deno, ["run", "--no-prompt", program]);
  expect(stdout).toBe(EXPECTED);
});

// Node 24 and older permit all connections.
test.skipIf(compareVersions(hostVersion, "25.0.0") < 0)(
  "a connection that Node does not permit becomes 502 destination_ip_prohibited",
  async () => {
    const flags = ["--permission", `--allow-fs-read=${root}`];
    const { stdout } = await execute(hostNode, [...flags, program]);
    expect(stdout).toBe(EXPECTED);
  },
);

describe("errors of sockets", () => {
  test.each([
    ["a local firewall", { code: "EPERM" }],
    ["Node", { code: "ERR_ACCESS_DENIED", name: "Error" }],
    ["Deno", { name: "NotCapable" }],
  ])("another upstream may get the request if %s refuses the connection", (_, members) => {
    const error = toSocketError(Object.assign(new Error("refused"), members), false, false);
    expect([error.code, outcomeOf(error)]).toEqual(["destination_ip_prohibited", "unsent"]);
  });

  test("after an error on an open connection, the upstream may have received the request", () => {
    const thrown = Object.assign(new Error("write EPERM"), { code: "EPERM" });
    const error = toSocketError(thrown, false, false, true);
    expect([error.code, outcomeOf(error)]).toEqual(["connection_terminated", "broken"]);
  });

  test("an error without a code or a known name is an internal error", () => {
    expect(toSocketError(new TypeError("x"), false, false)).toBeInstanceOf(ProxyError);
    expect(toSocketError(new TypeError("x"), false, false).code).toBe("proxy_internal_error");
  });
});
