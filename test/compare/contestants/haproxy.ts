import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { findPort } from "../../helpers/serve.ts";
import type { Contestant } from "../contestant.ts";
import { debianVersionOf, launch } from "./_launch.ts";

/** Each label is a line of the section `listen`. */
const hardenings = {
  "http-request del-header Forwarded": "Removes a Forwarded field that the client sent.",
  "http-request del-header ^(keep-alive|proxy-connection|te)$ -m reg":
    "Removes fields about the connection from requests.",
  "http-response del-header ^(keep-alive|proxy-connection)$ -m reg":
    "Removes fields about the connection from responses.",
  'http-request add-header Via "1.1 haproxy"': "Sends Via.",
  "http-request set-uri %[pathq]": "Sends the path of a target in absolute form.",
  "http-response set-header Date %[date,http_date] unless { res.hdr(Date) -m found }":
    "Adds Date to a response that has none.",
  "option abortonclose": "Cancels the upstream request when the client closes the connection.",
};

/** The timeouts are those of Debian's haproxy.cfg. */
function toConfig(port: number, upstream: number, hardening?: string): string {
  return `defaults
  mode http
  timeout connect 5s
  timeout client 50s
  timeout server 50s
listen proxy
  bind 127.0.0.1:${port}
  option forwardfor
${hardening ? `  ${hardening}\n` : ""}  server upstream 127.0.0.1:${upstream}
`;
}

export const haproxy: Contestant = {
  name: "haproxy",
  source: "apt",
  hardenings,
  async start({ upstream, folder, hardening }) {
    const version = debianVersionOf("haproxy", "-v");
    const port = await findPort();
    const configuration = toConfig(port, upstream, hardening);
    const file = join(folder, "haproxy.cfg");
    writeFileSync(file, configuration);
    const started = await launch(["haproxy", "-db", "-f", file], port);
    return { ...started, version, configuration };
  },
};
