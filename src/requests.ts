/**
 * Functions with which an app in front of a proxy reads a request as the proxy does: `fetchway/requests`. A router protects
 * nothing if the path or the host that it checks differs from the one that the proxy forwards.
 * @module
 */
export { TOKEN } from "./fields/token.ts";
export { isAuthority } from "./request/host.ts";
export { createTrust, type Trust } from "./request/trust.ts";
export { unmapAddress } from "./target/address.ts";
export { authorityOf, decodeLayers, pathOf } from "./target/target.ts";
