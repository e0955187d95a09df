import type { FilledPoolOptions } from "../options/pooloptions.ts";
import type { TlsOptions, Upstream } from "../request/target.ts";

/** Where one origin's connections go, with what is the pool's where the target says nothing. */
export interface Destination {
  readonly origin: string;
  readonly hostname: string;
  readonly secure: boolean;
  readonly socketPath: string | undefined;
  readonly tls: TlsOptions | undefined;
}

/** An upstream, and what the pool has for those that bring none of their own. */
export function toDestination(upstream: Upstream, options: FilledPoolOptions): Destination {
  const { origin, hostname, secure } = upstream;
  const tls = secure ? (upstream.tls ?? options.tls) : undefined;
  return { origin, hostname, secure, socketPath: upstream.socketPath ?? options.socketPath, tls };
}
