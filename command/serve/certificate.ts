/** The certificates of the command: its own, and those that it trusts. */
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { createSecureContext } from "node:tls";
import type { TlsOptions } from "#fetchway";
import { quoteInput } from "#fetchway/options";
import type { Server } from "srvx";
import type { NameServerOption } from "../config/settings.ts";
import { watchFiles } from "../config/watchfiles.ts";
import { UsageError } from "../flags/read.ts";
import { printError, printNotice, printWarning } from "../log/ownmessages.ts";

/**
 * Milliseconds for which a certificate and its key may be inconsistent, because the two files are written one after the
 * other.
 */
const PAIR_TIME = 5000;

/** The texts of a certificate with its chain, and of its key, in PEM. */
export interface CertificateTexts {
  readonly cert: string;
  readonly key: string;
}

/** The paths of a certificate and its key. */
export interface CertificatePaths {
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/**
 * Reads the certificate of the server.
 * @returns undefined if neither file is given
 * @throws UsageError that names the option and the fix
 */
export function readCertificate(
  { cert, key }: CertificatePaths,
  nameOption: NameServerOption,
): CertificateTexts | undefined {
  if (cert === undefined && key === undefined) return undefined;
  const [certName, keyName] = [nameOption("cert"), nameOption("key")];
  if (key === undefined) {
    const missing = certName.replace("cert", "key");
    throw new UsageError(`${certName} needs ${missing}: the file of its private key`);
  }
  if (cert === undefined) {
    const missing = keyName.replace("key", "cert");
    throw new UsageError(`${keyName} needs ${missing}: the file of its certificate`);
  }
  const texts = {
    cert: readPem(certName, cert, "CERTIFICATE"),
    key: readPem(keyName, key, "PRIVATE KEY"),
  };
  try {
    createSecureContext(texts);
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    if (code === "ERR_OSSL_X509_KEY_VALUES_MISMATCH") {
      throw new UsageError(
        `${keyName} ${quoteInput(key)}: it is not the key of the first certificate in ${cert}`,
      );
    }
    throw new UsageError(`${certName} ${quoteInput(cert)} cannot be used: ${message}`);
  }
  return texts;
}

interface TrustOptions {
  readonly ca?: string | undefined;
  readonly insecure?: boolean | undefined;
}

/**
 * Reads the certificates of the authorities to trust.
 * @throws UsageError that names the option and the fix
 */
function readAuthorities(path: string, name: string): string[] {
  const pem = readPem(name, path, "CERTIFICATE");
  const certificate = /-----BEGIN (?:TRUSTED )?CERTIFICATE-----.+?-----END [^-]+-----/gs;
  return Array.from(pem.matchAll(certificate), ([block]) => {
    // Parse each certificate here: the TLS option `ca` silently ignores one that cannot be parsed.
    try {
      return new X509Certificate(block).toString().trim();
    } catch (error) {
      const { message } = error as Error;
      throw new UsageError(`${name} ${quoteInput(path)} cannot be used: ${message}`);
    }
  });
}

/**
 * Returns the TLS options for connections to upstreams.
 * @param onDoubt called with a warning if they are not safe
 * @throws UsageError that names the option and the fix
 */
export function readTrust(
  { ca, insecure }: TrustOptions,
  nameOption: NameServerOption,
  onDoubt: (warning: string) => void = () => {},
): TlsOptions | undefined {
  if (insecure === true) {
    const name = nameOption("insecure");
    onDoubt(
      `${name} accepts any certificate of an upstream: others on the network can read and change everything`,
    );
    return { rejectUnauthorized: false };
  }
  return ca === undefined ? undefined : { ca: readAuthorities(ca, nameOption("ca")) };
}

function readPem(name: string, path: string, what: "CERTIFICATE" | "PRIVATE KEY"): string {
  const label = `${name} ${quoteInput(path)}`;
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`${label} cannot be read: ${explainCode(error)}`);
  }
  if (/-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: 4,ENCRYPTED/m.test(text)) {
    throw new UsageError(
      `${label}: the key is encrypted; write it decrypted with openssl pkey -in … -out …`,
    );
  }
  if (new RegExp(`-----BEGIN [A-Z ]*${what}-----`).test(text)) return text;
  throw new UsageError(
    `${label}: there is no ${what.toLowerCase()} in PEM (-----BEGIN ${what}-----) in it`,
  );
}

function explainCode(error: unknown): string {
  const { code, message } = error as Error & { code?: string };
  if (code === "ENOENT") return "there is no such file";
  if (code === "EACCES") return "the user of this process may not read it";
  if (code === "EISDIR") return "it is a folder";
  return message;
}

/** The member of a Node TLS server that is used here. */
interface SecureServer {
  setSecureContext(texts: CertificateTexts): void;
}

/** A certificate that is reloaded when its files change. */
export interface WatchedCertificate {
  /** Reads the files, whether they have changed or not. */
  readonly read: () => void;
  /** Ends the watch. */
  readonly close: () => void;
}

/**
 * Calls `use` with the certificate when its files have changed. If they cannot be used, a message says why, and the
 * server keeps its certificate. A certificate and its key are written one after the other, so after a change that
 * leaves them inconsistent, the other file may follow within `PAIR_TIME`.
 */
export function watchCertificate(
  paths: CertificatePaths,
  nameOption: NameServerOption,
  use: (texts: CertificateTexts) => void,
): WatchedCertificate {
  let timer: ReturnType<typeof setTimeout> | undefined;
  function read(isComplete: boolean): void {
    clearTimeout(timer);
    let texts: CertificateTexts;
    try {
      texts = readCertificate(paths, nameOption) as CertificateTexts;
    } catch (error) {
      if (!isComplete) timer = setTimeout(() => read(true), PAIR_TIME);
      else printError(`the certificate stays as it is: ${(error as Error).message}`);
      return;
    }
    use(texts);
  }
  const files = [paths.cert, paths.key].filter((path) => path !== undefined);
  const end = watchFiles(files, () => read(false));
  return {
    read: () => read(true),
    close() {
      clearTimeout(timer);
      end();
    },
  };
}

/**
 * Reloads the certificate of the server when its files change. New connections get the new certificate, and open connections
 * keep theirs.
 * @returns a function that reads the files whether they have changed or not
 */
export function reloadCertificate(
  server: Server,
  paths: CertificatePaths,
  nameOption: NameServerOption,
): () => void {
  const { read } = watchCertificate(paths, nameOption, (texts) => {
    const secure = server.node?.server as Partial<SecureServer> | undefined;
    if (secure?.setSecureContext === undefined) {
      printWarning(
        "the certificate is not reloaded: only Node's server can change it; restart the command",
      );
      return;
    }
    secure.setSecureContext(texts);
    printNotice("the certificate has been reloaded");
  });
  return read;
}
