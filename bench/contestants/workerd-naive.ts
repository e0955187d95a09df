/** A proxy on workerd that only calls `fetch`. */
const worker: { fetch(request: Request, env: { TARGET: string }): Promise<Response> } = {
  fetch(request, env) {
    const { pathname, search } = new URL(request.url);
    return fetch(new Request(env.TARGET + pathname + search, request));
  },
};
export default worker;
