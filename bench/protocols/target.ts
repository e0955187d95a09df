/** An upstream with HTTP/2 and HTTP/1.1 over TLS. It answers the GET requests of the workloads. */
import { readFileSync } from "node:fs";
import { createSecureServer } from "node:http2";
import { workloads } from "../workloads.ts";

const answers = new Map(
  workloads.filter(({ method }) => method === "GET").map((workload) => [workload.path, workload]),
);

const pem = readFileSync(process.env["CERTIFICATE"] ?? "");
const server = createSecureServer({ cert: pem, key: pem, allowHTTP1: true }, (req, res) => {
  const { type, answer } = answers.get(req.url) ?? {
    type: "text/plain",
    answer: Buffer.from("ready"),
  };
  res.writeHead(200, {
    "content-type": type,
    "content-length": answer.length,
    "cache-control": "max-age=60",
    etag: '"bench"',
  });
  res.end(answer);
});
server.listen(Number(process.env["PORT"]), "127.0.0.1", 4096);
process.stdin.resume().on("end", () => process.exit());
