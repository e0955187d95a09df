/** The suite on one host. vitest.config.ts has a project for each host, with the host's name in `HOST`. */
import { type HostName, hostNames } from "../hosts/_hosts.ts";
import { addTests } from "./_suite.ts";

const host = process.env["HOST"];
if (!hostNames.includes(host as HostName))
  throw new Error(`HOST ${host}: use some of ${hostNames.join(", ")}`);
addTests(host as HostName);
