/**
 * Makes `https.Agent` cache TLS sessions even for connections that do not carry requests of the agent itself.
 *
 * - Rests on: `createConnection` resumes the session that the agent has cached under the option `_agentKey`, and caches the
 *   session of the new connection. The agent sets this option only for its own requests.
 * - Check: the agent must have a method that caches sessions.
 * - Otherwise: the option is left out, and each connection has a full TLS handshake.
 * - Test: test/runtimes/node/internals/tlssessions.test.ts.
 */

/** The options that make an agent resume the TLS session of the last connection with the same key. */
export interface SessionOptions {
  readonly _agentKey?: string;
}

/** Returns the options for a connection; no option if the agent does not cache sessions. */
export function sessionOptions(agent: object, key: string): SessionOptions {
  return "_cacheSession" in agent ? { _agentKey: key } : {};
}
