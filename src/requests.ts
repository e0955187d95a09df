/**
 * Functions with which an app in front of a proxy reads a request as the proxy does: `fetchway/requests`. A router that
 * compares another path or host than the proxy forwards protects nothing.
 * @module
 */
export { TOKEN } from "./fields/token.ts";
export { isAuthority } from "./request/host.ts";
export { createTrust, type Trust } from "./request/trust.ts";
export { unmapAddress } from "./target/address.ts";
export { authorityOf, decodeLayers, pathOf } from "./target/target.ts";
