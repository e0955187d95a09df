/**
 * Builds the image of examples/container, runs it, and replaces the pods of examples/kubernetes under load. When a new pod is
 * ready, the old pod waits for `preStop`, is removed from the endpoints late, and gets SIGTERM. No request, event stream or
 * WebSocket may fail.
 *
 *     npm run test:deploy
 *     npm run test:deploy -- --base node:24.21.0-slim
 *     npm run test:deploy -- --pre-stop 0              # shows why `preStop` is needed
 *
 * It needs root and podman. Without `--base`, it also needs mmdebstrap, to make an image with Debian and the pinned Node. If
 * podman's default runtime does not work on the machine, for example with cgroups of both versions, set CONTAINERS_CONF to a
 * file that names another runtime.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { pause } from "../helpers/wait.ts";
import { Balancer } from "./_balancer.ts";
import { eventsUpTo } from "./_events.ts";
import { buildImage, IMAGE, makeBase } from "./_image.ts";
import { Load } from "./_load.ts";
import { type Container, Containers, podman, stop, tryPodman } from "./_podman.ts";
import {
  type Cluster,
  confine,
  deployment,
  endPod,
  mountConfig,
  portOf,
  startPod,
} from "./_pods.ts";

const ROOT = join(import.meta.dirname, "../..");
/** The seconds of load before the pods are replaced, and again afterwards. */
const CALM = 5;
/** Seconds after which Docker kills a container that has not stopped at its signal. */
const DOCKER_GRACE = 10;

const { values } = parseArgs({
  options: {
    base: { type: "string" },
    "pre-stop": { type: "string" },
    "endpoints-late": { type: "string", default: "3" },
  },
});
const preStop = values["pre-stop"] === undefined ? undefined : Number(values["pre-stop"]);

let isGood = true;
function check(holds: boolean, text: string): void {
  console.log(`${holds ? "ok" : "FAILED"}: ${text}`);
  isGood &&= holds;
}

const folder = mkdtempSync(join(tmpdir(), "fetchway-deploy-"));
try {
  const base = values.base ?? (await makeBase(folder));
  await buildImage(folder, base);
  await using containers = await Containers.create();
  const upstream = await containers.start(() => [
    `--volume=${ROOT}:${ROOT}:ro`,
    base,
    "node",
    join(import.meta.dirname, "_upstream.ts"),
  ]);
  await tryContainer(containers, upstream.address);
  await replacePods(containers, upstream.address);
} finally {
  rmSync(folder, { recursive: true });
}
if (!isGood) process.exitCode = 1;

/** Runs the image with the config file that is in it, and stops it while a response is running. */
async function tryContainer(containers: Containers, upstream: string): Promise<void> {
  const container = await containers.start(() => [...confine(upstream), IMAGE]);
  const origin = `http://${container.address}:${portOf("http")}`;
  let tries = 0;
  let health = await tryPodman("healthcheck", "run", container.id);
  for (; health.code !== 0 && tries < 10; tries++) {
    await pause(1000);
    health = await tryPodman("healthcheck", "run", container.id);
  }
  check((await podman("exec", container.id, "id", "-u")) === "1000", "the user is 1000");
  check(health.code === 0, `the health check of a container that runs succeeds`);
  const response = await fetch(`${origin}/events?count=40`);
  const began = performance.now();
  const stopped = stop(container, DOCKER_GRACE);
  check((await response.text()) === eventsUpTo(40), "a response that was running is complete");
  check((await stopped) === 0, `stopped in ${Math.round(performance.now() - began)} ms`);
}

async function replacePods(containers: Containers, upstream: string): Promise<void> {
  using balancer = new Balancer(portOf("http"));
  const cluster: Cluster = { containers, balancer, config: mountConfig(folder), upstream };
  const { replicas, minReadySeconds } = deployment.spec;
  const old = await Promise.all(Array.from({ length: replicas }, () => startPod(cluster)));
  using load = new Load(await balancer.listen());
  load.start();
  await pause(CALM * 1000);
  const ending: Promise<number>[] = [];
  for (const pod of old) {
    await startPod(cluster);
    await pause(minReadySeconds * 1000);
    ending.push(end(cluster, pod));
  }
  const codes = await Promise.all(ending);
  await pause(CALM * 1000);
  await load.finish();
  for (const [kind, { succeeded, repeated, failures }] of load.outcomes) {
    const more = [...failures].map(([text, count]) => `, ${count} × ${text}`);
    if (repeated > 0) more.unshift(`, ${repeated} repeated after GOAWAY`);
    check(succeeded > 0 && failures.size === 0, `${succeeded} ${kind}${more.join("")}`);
  }
  check(
    codes.every((code) => code === 0),
    `exit codes of the pods: ${codes.join(", ")}`,
  );
  console.log(`connections of each pod: ${[...balancer.connections.values()].join(", ")}`);
}

async function end(cluster: Cluster, pod: Container): Promise<number> {
  const began = performance.now();
  const code = await endPod(cluster, pod, Number(values["endpoints-late"]), preStop);
  console.log(`${pod.address} ended after ${Math.round(performance.now() - began)} ms`);
  return code;
}
