import { badOption, cutCredentials } from "../../src/misuse.ts";
import { nearest } from "../../src/schema/nearest.ts";
import type { TlsOptions } from "../../src/target/target.ts";

/** The options of `tls.connect`: https://nodejs.org/api/tls.html#tlsconnectoptions-callback. */
const OF_CONNECT =
  "ALPNCallback ALPNProtocols checkServerIdentity enableTrace host isServer lookup minDHSize path port pskCallback " +
  "rejectUnauthorized requestCert requestOCSP secureContext server servername session SNICallback socket timeout";
/** The options of a secure context: https://nodejs.org/api/tls.html#tlscreatesecurecontextoptions. */
const OF_CONTEXT =
  "allowPartialTrustChain ca cert certificateCompression ciphers clientCertEngine crl dhparam ecdhCurve " +
  "honorCipherOrder key maxVersion minVersion passphrase pfx privateKeyEngine privateKeyIdentifier secureOptions " +
  "secureProtocol sessionIdContext sessionTimeout sigalgs ticketKeys";
/** The options of a socket and of its connection: https://nodejs.org/api/net.html#new-netsocketoptions. */
const OF_SOCKET =
  "allowHalfOpen autoSelectFamily autoSelectFamilyAttemptTimeout blockList family fd handle highWaterMark hints " +
  "keepAlive keepAliveInitialDelay localAddress localPort noDelay onread readable signal typeOfService writable";

/** The options that a connection of `node:tls` may have. All are passed on, although `TlsOptions` has only the usual ones. */
const NAMES: readonly string[] = `${OF_CONNECT} ${OF_CONTEXT} ${OF_SOCKET}`.split(" ");

/** The `tls` objects whose names have been checked: a target may be parsed with each request, but is checked only once. */
const checked = new WeakSet<TlsOptions>();

/**
 * Checks the names of TLS options: the runtime would ignore a misspelt one, and the connection would be less secure than the
 * user intended.
 * @param more the names of further options that this runtime has
 * @throws TypeError that names the option
 */
export function checkTlsNames(tls: TlsOptions, more: readonly string[]): void {
  if (checked.has(tls)) return;
  const names = [...NAMES, ...more];
  for (const name of Object.keys(tls)) {
    if (names.includes(name)) continue;
    const meant = nearest(name, names);
    const fix =
      meant === undefined ? "`tls.connect` has none either" : `did you mean \`${meant}\`?`;
    throw badOption("tls", `${cutCredentials(name)}: there is no such option; ${fix}`);
  }
  checked.add(tls);
}
