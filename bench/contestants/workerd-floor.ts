/** The control on workerd. */
import { forwardByHand } from "./_byhand.ts";

const worker: { fetch(request: Request, env: { TARGET: string }): Promise<Response> } = {
  fetch(request, env) {
    const { cf } = request as { cf?: { clientIp?: string } };
    return forwardByHand(request, env.TARGET, cf?.clientIp?.replace(/:\d+$/, "") ?? "");
  },
};

export default worker;
