/** A Worker without a proxy. */
export default { fetch: (): Response => new Response("ready") };
