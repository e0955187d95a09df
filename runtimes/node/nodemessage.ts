/** A value that may be a message of `node:http`. */
type Passed = { readonly httpVersion?: unknown; readonly req?: unknown } | null | undefined;

/**
 * Returns advice for an app that has passed a request of `node:http` to the proxy; undefined for any other value.
 * @param passed what a framework has passed to its handler
 */
export function explainNodeMessage(passed: unknown): string | undefined {
  const { req, raw, node } = (passed ?? {}) as Record<string, Passed>;
  const messages = [passed, req, raw, node?.req] as Passed[];
  return messages.some((message) => message?.httpVersion !== undefined)
    ? "for a request of node:http, Express or Fastify use createProxy({ target }).nodeHandler(req, res)"
    : undefined;
}
