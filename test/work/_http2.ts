/** A transport that asks its upstream for HTTP/2. */
import { createTransport, type Transport } from "../../runtimes/node.ts";

export const transport: Transport = createTransport({ http2: true });
