import { isIP } from "node:net";
import { Agent, buildConnector } from "undici";
import { poolDefaults } from "../../src/pool.ts";

/**
 * An agent that keeps connections as the proxy's own client does.
 * @param keepAlive whether connections are kept
 */
export function createAgent(keepAlive: boolean): Agent {
  const { maxSockets, freeSocketTimeout, connectTimeout, keepAliveInitialDelay } = poolDefaults;
  const connect = buildConnector({
    timeout: connectTimeout,
    keepAliveInitialDelay,
    // HTTP/2 loses repeated fields, their case and the reason phrase; an agent of the app's may allow it.
    allowH2: false,
  });
  return new Agent({
    allowH2: false,
    connections: maxSockets,
    pipelining: keepAlive ? 1 : 0,
    keepAliveTimeout: freeSocketTimeout,
    // An upstream's hint may shorten the time, never lengthen it.
    keepAliveMaxTimeout: freeSocketTimeout,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect(options, callback) {
      // An address is no name for SNI (RFC 6066 §3): the certificate is checked against the address itself.
      const { servername: _, ...unnamed } = options;
      const isAddress = isIP(options.hostname.replace(/^\[|\]$/g, "")) !== 0;
      connect(isAddress ? unnamed : options, callback);
    },
  });
}
