/** Answers the request with which the bench waits for the Worker, so that the proxy is loaded, but not called. */
export interface Worker {
  fetch(request: Request, env: { TARGET: string }): Response | Promise<Response>;
}

export function answer(
  forward: (request: Request, target: string) => Response | Promise<Response>,
): Worker["fetch"] {
  return (request, { TARGET }) =>
    TARGET === "" ? new Response("ready") : forward(request, TARGET);
}
