/** Starts and ends pods of examples/kubernetes with podman, in the same way as a kubelet. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { pause } from "../helpers/wait.ts";
import type { Balancer } from "./_balancer.ts";
import { type Container, type Containers, stop } from "./_podman.ts";

const EXAMPLES = join(import.meta.dirname, "../../examples");

interface Deployment {
  readonly spec: {
    readonly replicas: number;
    readonly minReadySeconds: number;
    readonly template: {
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly securityContext: { readonly runAsUser: number; readonly runAsGroup: number };
        readonly containers: readonly [
          {
            readonly image: string;
            readonly args: readonly string[];
            readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
            readonly startupProbe: {
              readonly httpGet: { readonly path: string };
              readonly periodSeconds: number;
              readonly failureThreshold: number;
            };
            readonly lifecycle: { readonly preStop: { readonly sleep: { seconds: number } } };
            readonly resources: { readonly limits: { readonly memory: string } };
            readonly volumeMounts: readonly [{ readonly mountPath: string }];
          },
        ];
      };
    };
  };
}

function readManifest(name: string): unknown {
  return parse(readFileSync(join(EXAMPLES, "kubernetes", name), "utf8"));
}

export const deployment: Deployment = readManifest("deployment.yaml") as Deployment;
const { spec } = deployment.spec.template;
const [container] = spec.containers;

export function portOf(name: string): number {
  return container.ports.find((port) => port.name === name)?.containerPort ?? 0;
}

/** Writes the files of the ConfigMap as a kubelet does: each is a link into a folder, and an update replaces the folder. */
export function mountConfig(folder: string): string {
  const { data } = readManifest("configmap.yaml") as { data: Record<string, string> };
  const mount = join(folder, "configmap");
  mkdirSync(join(mount, "..1"), { recursive: true });
  symlinkSync("..1", join(mount, "..data"));
  for (const [file, text] of Object.entries(data)) {
    writeFileSync(join(mount, "..1", file), text);
    symlinkSync(join("..data", file), join(mount, file));
  }
  return mount;
}

export interface Cluster {
  readonly containers: Containers;
  readonly balancer: Balancer;
  /** The folder with the files of the ConfigMap. */
  readonly config: string;
  /** The IP address of the upstream. All target names of the ConfigMap resolve to it. */
  readonly upstream: string;
}

/** Returns arguments that give a container no privileges, and resolve the target names of the examples to the upstream. */
export function confine(upstream: string): string[] {
  return [
    `--add-host=api:${upstream}`,
    `--add-host=web:${upstream}`,
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
  ];
}

/** Starts a pod, and makes it an endpoint once its startup probe succeeds. */
export async function startPod(cluster: Cluster): Promise<Container> {
  const { runAsUser, runAsGroup } = spec.securityContext;
  const pod = await cluster.containers.start((address) => [
    ...confine(cluster.upstream),
    `--user=${runAsUser}:${runAsGroup}`,
    `--env=POD_IP=${address}`,
    `--memory=${container.resources.limits.memory.replace("i", "")}`,
    `--volume=${cluster.config}:${container.volumeMounts[0].mountPath}:ro`,
    container.image,
    ...container.args.map((each) => each.replace("$(POD_IP)", address)),
  ]);
  const { httpGet, periodSeconds, failureThreshold } = container.startupProbe;
  const probe = `http://${pod.address}:${portOf("admin")}${httpGet.path}`;
  for (let left = failureThreshold; !(await isGood(probe)); left--) {
    if (left === 0) throw new Error(`${probe} did not succeed`);
    await pause(periodSeconds * 1000);
  }
  cluster.balancer.endpoints.add(pod.address);
  return pod;
}

function isGood(probe: string): Promise<boolean> {
  return fetch(probe).then(
    ({ ok }) => ok,
    () => false,
  );
}

/**
 * Ends a pod: `preStop`, SIGTERM, and SIGKILL at the end of the grace period. Removes it from the endpoints meanwhile.
 * @param late seconds until it is removed from the endpoints
 * @returns the exit code
 */
export async function endPod(
  { balancer }: Cluster,
  pod: Container,
  late: number,
  preStop: number = container.lifecycle.preStop.sleep.seconds,
): Promise<number> {
  const [code] = await Promise.all([
    pause(preStop * 1000).then(() => stop(pod, spec.terminationGracePeriodSeconds - preStop)),
    pause(late * 1000).then(() => balancer.endpoints.delete(pod.address)),
  ]);
  return code;
}
